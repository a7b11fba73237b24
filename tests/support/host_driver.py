"""A started host driver over a recording, as the agent would make it."""

from pathlib import Path

from oslo_config import cfg

from agent.conf import options
from agent.driver.interface import HostContext
from drivers.host import HostDriver

CONTEXT = HostContext(
    name="compute-1", identity="5f1c3f9e-6b1a-4d38-9d5e-0d6f2f4d7d10", state_path=Path("state")
)


def host_conf(sysfs_root: Path, instances_path: Path = Path("/")) -> cfg.ConfigOpts:
    """The agent's options with these two set and no file read."""
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    conf.set_override("sysfs_root", str(sysfs_root), "host")
    conf.set_override("instances_path", str(instances_path))
    return conf


def started(sysfs_root: Path, instances_path: Path = Path("/")) -> HostDriver:
    """A driver that has passed ``start``."""
    driver = HostDriver(host_conf(sysfs_root, instances_path))
    driver.start(CONTEXT)
    return driver
