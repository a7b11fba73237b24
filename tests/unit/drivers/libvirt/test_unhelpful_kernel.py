"""A kernel that does not tell libvirt enough for its short answers: the capabilities
say the same.
"""

from tests.support.libvirt_answers import ONLINE, answers, facts


def test_without_a_map_of_cpus_those_run_of_which_libvirt_tells_where_they_are():
    found = facts(answers(online=None))
    assert (found.cpu.online, found.incomplete) == (ONLINE, {})
    assert found.numa == facts(answers()).numa


def test_without_figures_of_the_node_its_memory_is_that_of_the_cells():
    found = facts(answers(info=None))
    assert (found.memory_mib, found.incomplete) == (found.numa.memory_mib, {})


def test_without_either_and_with_a_broken_cell_memory_is_not_told():
    broken = answers().capabilities.replace("8388608", "much")
    assert "memory" in facts(answers(info=None, capabilities=broken)).incomplete
