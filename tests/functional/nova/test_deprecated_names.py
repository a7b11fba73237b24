"""The older names of options, compared with nova's own option objects.

``NOVA_PYTHON`` names a Python with nova 34; without it this is left out.
"""

import json
import subprocess

import pytest

from agent.conf import devices
from agent.conf import options as agent_options
from tests.functional.nova.nova_api import NOVA
from tests.support import backends

TYPE, NETWORK = "nvidia-35", "foo"
SCRIPT = f"""
import json, nova.conf
from nova.conf import CONF, devices, neutron
CONF([], default_config_files=[])
CONF.set_override("enabled_mdev_types", ["{TYPE}"], "devices")
CONF.set_override("physnets", ["{NETWORK}"], "neutron")
devices.register_dynamic_opts(CONF)
neutron.register_dynamic_opts(CONF)
groups = {{"DEFAULT": CONF._opts, **{{name: group._opts for name, group in CONF._groups.items()}}}}
print(json.dumps({{
    f"{{group}} {{name}}": [
        [old.group or group, (old.name or name).replace("-", "_")]
        for old in found["opt"].deprecated_opts
    ]
    for group, options in groups.items()
    for name, found in options.items()
}}))
"""


def test_every_older_name_that_nova_still_reads_is_read_for_every_option() -> None:
    if not NOVA:
        pytest.skip(backends.reason("nova's options", "set NOVA_PYTHON to a Python with nova"))
    done = subprocess.run(
        [NOVA, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    theirs: dict[str, list[list[str]]] = json.loads(done.stdout)
    ours = {
        f"{group or 'DEFAULT'} {option.dest}": [
            [old.group or group or "DEFAULT", (old.name or option.dest).replace("-", "_")]
            for old in option.deprecated_opts
        ]
        for group, options in (
            *agent_options.by_group(),
            *agent_options.list_opts(),
            (devices.type_group(TYPE), devices.type_options(TYPE)),
            (devices.physnet_group(NETWORK), [devices.NUMA_NODES]),
        )
        for option in options
    }
    shared = ours.keys() & theirs.keys()
    missing = {
        name: [old for old in theirs[name] if old not in ours[name]]
        for name in shared
        if not all(old in ours[name] for old in theirs[name])
    }
    assert missing == {}
    # The comparison saw the options, those of the dynamic sections too.
    assert theirs["ironic conductor_group"] == [["ironic", "partition_key"]]
    assert {f"mdev_{TYPE} device_addresses", f"neutron_physnet_{NETWORK} numa_nodes"} <= shared
