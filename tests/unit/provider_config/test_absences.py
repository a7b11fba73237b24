"""Which entries are reported as absent, and when."""

from agent.provider_config.applying import COMPUTE_NODE, Absences, Entry, Key, ProviderConfig
from agent.yaml_files import TextPosition

GPU, NIC = Key("name", "gpu-0"), Key("uuid", "5f9c2a34-7d1e-4a8b-9c46-000000000002")
CONFIG = ProviderConfig(
    entries=tuple(
        Entry(key, "a.yaml", TextPosition(line, 3))
        for line, key in enumerate((GPU, NIC, Key("uuid", COMPUTE_NODE)), 1)
    )
)


def lines(caplog):
    found = [record.getMessage().partition(":3)")[0] for record in caplog.records]
    caplog.clear()
    return found


def test_each_is_told_once_and_again_after_it_was_there(caplog):
    absences = Absences()
    passes = [set(), set(), {GPU}, {GPU}, set(), {NIC}, set()]
    seen = []
    for found in passes:
        absences.warn(CONFIG, found, ["c1"])
        seen.append(lines(caplog))
    first, second = "name gpu-0 (a.yaml:1", f"uuid {NIC.value} (a.yaml:2"
    assert seen == [[first, second], [], [], [], [first], [], [second]]


def test_names_that_may_be_meant_come_first_and_are_few(caplog):
    names = [f"c{number}" for number in range(100)] + ["gpu-1", "gpu", "x\ny"]
    Absences().warn(ProviderConfig(entries=CONFIG.entries[:1]), set(), names)
    (record,) = caplog.records
    known = record.getMessage().partition("Known here: ")[2].split(", ")
    assert known[:2] == ["gpu-1", "gpu"]
    assert len(known) == 10


def test_names_are_shown_escaped(caplog):
    Absences().warn(CONFIG, {NIC}, ["x\nERROR"])
    assert "x\\nERROR" in caplog.text.splitlines()[0]
