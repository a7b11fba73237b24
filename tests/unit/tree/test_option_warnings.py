"""What an operator is told of options that can be used, but do something else than nova's would."""

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.pci.settings import PciSettings
from agent.tree import option_warnings
from agent.tree.policy import Policy


@pytest.fixture(autouse=True)
def _no_files_of_nova(tmp_path, monkeypatch):
    monkeypatch.setattr(option_warnings, "NOVA_PROVIDER_CONFIG", tmp_path)


def warnings(driver, **ironic):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    for name, value in ironic.items():
        conf.set_override(name, value, "ironic")
    return list(
        option_warnings.option_warnings(
            conf, driver, Policy.from_options(conf), PciSettings.from_options(conf)
        )
    )


def test_the_peers_of_an_ironic_compute_service_are_named_with_what_takes_their_place():
    (told,) = warnings("ironic", peer_list=["a", "b"])
    assert told.startswith(
        "[ironic] peer_list = a,b has no effect here: one agent manages all nodes of a "
        "conductor group and shard"
    )
    assert warnings("libvirt", peer_list=["a", "b"]) == []
