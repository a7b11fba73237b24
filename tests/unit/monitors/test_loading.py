import pytest
from oslo_config import cfg

from agent.conf import options
from agent.errors import ConfigErrors
from agent.monitors import NAMESPACE, load_monitors
from agent.monitors.linux import CpuMonitor
from tests.support import distribution


class OtherCpuMonitor(CpuMonitor):
    pass


class NeedsMore(CpuMonitor):
    def __init__(self, more):
        pass


class NoMonitor:
    type = "nothing"


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Monitors of somebody else."""
    plugins = {
        "other": f"{__name__}:OtherCpuMonitor",
        "needs": f"{__name__}:NeedsMore",
        "none": f"{__name__}:NoMonitor",
        "nowhere": "no_such_module_of_the_tests:M",
    }
    monkeypatch.syspath_prepend(
        str(distribution.install(tmp_path, "other-monitors", plugins, NAMESPACE))
    )


def loaded(*names):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("monitors", list(names), "compute")
    return load_monitors(conf)


def complaints(*names):
    with pytest.raises(ConfigErrors) as refused:
        loaded(*names)
    return [(error.message, error.remedy) for error in refused.value.errors]


def test_one_of_somebody_else_is_found_by_its_name(others):
    assert type(loaded("other")["other"]).__name__ == "OtherCpuMonitor"


def test_an_unknown_one_is_named_with_those_that_there_are():
    assert complaints("cpu", "cqu\n") == [
        ("[compute] monitors: cqu\\n: no such monitor", "installed: cpu, memory")
    ]


def test_two_of_one_type_are_refused(others):
    assert complaints("cpu", "memory", "other") == [
        ("[compute] monitors: cpu and other both measure cpu", "leave one of the two out")
    ]
    assert complaints("cpu", "cpu") == [
        ("[compute] monitors: cpu and cpu both measure cpu", "leave one of the two out")
    ]


def test_all_that_is_wrong_is_told_at_once(others):
    unknown, needs, none, nowhere, twice = [
        message for message, _ in complaints("x", "needs", "none", "nowhere", "cpu", "other")
    ]
    assert unknown == "[compute] monitors: x: no such monitor"
    assert needs.startswith("[compute] monitors: needs: it cannot be made: TypeError: ")
    assert (
        none
        == "[compute] monitors: none: it is no monitor, because it lacks type, unsupported or metrics"
    )
    assert nowhere == (
        "[compute] monitors: nowhere: it cannot be made: ModuleNotFoundError: No module named "
        "'no_such_module_of_the_tests'"
    )
    assert twice == "[compute] monitors: cpu and other both measure cpu"
