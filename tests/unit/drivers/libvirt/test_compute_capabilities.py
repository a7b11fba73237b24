"""What a compute service on libvirt can do."""

import pytest

from drivers.libvirt.traits import compute_capabilities
from tests.support.libvirt_answers import answers

LOADER = (
    "<domainCapabilities><os><loader supported='yes'><enum "
    "name='secure'>{}</enum></loader></os></domainCapabilities>"
)


def secure(*values):
    return LOADER.format("".join(f"<value>{one}</value>" for one in values))


@pytest.mark.parametrize(
    ("version", "firmware", "addresses"),
    [(8_000_000, False, False), (8_006_000, True, False), (8_007_000, True, True)],
)
def test_what_came_with_a_later_libvirt(version, firmware, addresses):
    found = compute_capabilities(answers(libvirt_version=version), [], file_backed_memory=False)
    assert found["COMPUTE_SECURITY_STATELESS_FIRMWARE"] is firmware
    assert (
        found["COMPUTE_ADDRESS_SPACE_PASSTHROUGH"]
        is found["COMPUTE_ADDRESS_SPACE_EMULATED"]
        is addresses
    )
    assert found["COMPUTE_TRUSTED_CERTS"] is True
    assert found["COMPUTE_SAME_HOST_COLD_MIGRATE"] is False


def test_secure_boot_is_what_some_emulator_says_and_unknown_where_none_does():
    trait = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
    both = {("x86_64", "pc"): secure("no"), ("x86_64", "q35"): secure("no", "yes")}
    assert (
        compute_capabilities(answers(domain_capabilities=both), [], file_backed_memory=False)[trait]
        is True
    )
    assert (
        compute_capabilities(
            answers(
                domain_capabilities={("x86_64", "pc"): secure("no"), ("x86_64", "q35"): "<broken"}
            ),
            [],
            file_backed_memory=False,
        )[trait]
        is False
    )
    assert trait not in compute_capabilities(
        answers(domain_capabilities={}), [], file_backed_memory=False
    )
