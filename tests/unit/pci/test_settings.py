"""What the operator says of PCI devices, from the options."""

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.model.facts import HostFacts
from agent.pci.settings import PciSettings
from tests.support.ini import write_config
from tests.unit.pci.scene import host


def settings(tmp_path, **said):
    conf = cfg.ConfigOpts()
    options.register(conf)
    groups = {
        "DEFAULT": {
            name.removeprefix("DEFAULT_"): said.pop(name)
            for name in list(said)
            if name.startswith("DEFAULT_")
        },
        "pci": said,
    }
    conf([], default_config_files=[str(write_config(tmp_path / "agent.conf", groups))])
    return PciSettings.from_options(conf)


def test_options_given_several_times(tmp_path):
    found = settings(
        tmp_path,
        device_spec=['{"vendor_id": "8086"}', '[{"address": {"function": "[1-2]$"}}]'],
        alias=['{"name": "a", "vendor_id": "8086", "product_id": "154c"}'],
        report_in_placement=True,
    )
    assert ([spec.place for spec in found.specs], list(found.aliases), found.report) == (
        ["#1", "#2.1"],
        ["a"],
        True,
    )


@pytest.mark.parametrize("name", ["passthrough_whitelist", "DEFAULT_pci_passthrough_whitelist"])
def test_older_names_of_the_option(tmp_path, name):
    assert [
        spec.vendor_id for spec in settings(tmp_path, **{name: ['{"vendor_id": "8086"}']}).specs
    ] == ["8086"]


def test_older_name_of_the_aliases(tmp_path):
    assert list(
        settings(
            tmp_path, DEFAULT_pci_alias=['{"name": "a", "vendor_id": "8086", "product_id": "154c"}']
        ).aliases
    ) == ["a"]


def test_misfits_are_known_only_where_the_host_has_told_its_devices(tmp_path):
    found = settings(tmp_path, device_spec=['{"address": "0000:81:02.0", "remote_managed": "yes"}'])
    facts = HostFacts("node-1", 0.0, "test", pci=tuple(host().values()))
    (misfit,) = found.misfits(facts)
    assert "0000:81:02.0 is a physical function" in misfit.message
    assert (
        list(
            found.misfits(
                HostFacts("node-1", 0.0, "test", pci=facts.pci, incomplete={"pci": "it hangs"})
            )
        )
        == []
    )
