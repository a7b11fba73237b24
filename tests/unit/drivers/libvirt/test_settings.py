"""What the operator says in [libvirt]."""

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.errors import ConfigError, ConfigErrors
from drivers.libvirt import LibvirtDriver
from drivers.libvirt.settings import LibvirtSettings
from tests.support import libvirtd
from tests.support.libvirt_host import libvirt_conf


def settings(**given):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    for name, value in given.items():
        conf.set_override(name, value, None if name == "instances_path" else "libvirt")
    return LibvirtSettings.from_options(conf)


@pytest.mark.parametrize(
    ("mode", "meant"), [("host-model", "host"), ("host-passthrough", "host"), ("none", "none")]
)
def test_modes_that_need_no_models(mode, meant):
    assert settings(cpu_mode=mode).cpu_mode == meant


def test_models_are_for_the_mode_custom_alone():
    assert settings(cpu_mode="custom", cpu_models=["Haswell", "Skylake"]).cpu_models == (
        "Haswell",
        "Skylake",
    )
    for wrong in (
        {"cpu_mode": "custom"},
        {"cpu_models": ["Haswell"]},
        {"cpu_mode": "none", "cpu_models": ["Haswell"]},
    ):
        with pytest.raises(ConfigError, match=r"^\[libvirt\] cpu_models"):
            settings(**wrong)


def test_a_volume_group_has_to_be_named():
    assert settings(images_type="lvm", images_volume_group="vg0").disk.volume_group == "vg0"
    with pytest.raises(ConfigError, match="images_volume_group"):
        settings(images_type="lvm")


def test_everything_wrong_with_the_section_is_told_at_once():
    libvirtd.binding()
    with pytest.raises(ConfigErrors) as caught:
        LibvirtDriver(
            libvirt_conf(
                "none", cpu_mode="custom", images_type="lvm", pmem_namespaces=["a:ns0", "b:ns0"]
            )
        )
    told = [one.message for one in caught.value.errors]
    assert [
        any(option in one for one in told)
        for option in ("cpu_models", "images_volume_group", "pmem_namespaces")
    ] == [True] * 3
