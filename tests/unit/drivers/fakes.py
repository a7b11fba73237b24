"""What the tests of the fake drivers share."""

from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.conf import options
from agent.driver.interface import Driver, HostContext, load
from agent.model.facts import HostFacts
from agent.model.inventory import Record
from agent.model.provider_tree import ProviderTree

IDENTITY = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"
HOST = HostContext("cn1", IDENTITY, Path("/nonexistent"))
EXAMPLES = Path(__file__).parents[3] / "etc" / "hosts"


def configured(**fake: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([])
    for name, value in fake.items():
        conf.set_override(name, value, "fake")
    return conf


def started(name: str, **fake: Any) -> Any:
    driver: Driver = load(name, configured(**fake))
    driver.start(HOST)
    return driver


def root_tree(facts: HostFacts) -> ProviderTree:
    tree = ProviderTree()
    tree.new_root(facts.name, IDENTITY)
    return tree


def shaped(driver: Any, facts: HostFacts) -> ProviderTree:
    tree = root_tree(facts)
    driver.shape(tree, facts, None)
    return tree


def record(total: int, **other: float) -> Record:
    return {
        "total": total,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": 1.0,
        **other,
    }
