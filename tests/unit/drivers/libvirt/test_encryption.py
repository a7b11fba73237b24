"""Encrypted guests: what the kernel switched on, and what libvirt can give."""

import pytest

from agent.model.host_units import EncryptionFacts
from agent.tree.children import offered
from agent.tree.policy import EncryptionPolicy
from drivers.libvirt.domain_capabilities import Emulator, Sev, read_encryption
from drivers.libvirt.raw_capabilities import KernelAnswer

SEV = Emulator("x86_64", sev=Sev(15, 100))
ON = {"sev": "Y\n", "sev_es": "1"}


def contexts(switches, *emulators: Emulator, capacities: str | None = None):
    reading = read_encryption(KernelAnswer(switches, capacities), emulators)
    assert reading.faults == ()
    return reading.value.contexts if reading.value else {}


def test_sev_and_sev_es_have_what_libvirt_says():
    assert contexts(ON, SEV) == {"sev": 15, "sev_es": 100}


def test_sev_snp_has_the_contexts_of_sev_es_which_is_left_none():
    found = contexts({**ON, "sev_snp": "Y"}, SEV)
    assert offered(EncryptionFacts(found), EncryptionPolicy()) == {"sev": 15, "sev_snp": 100}


@pytest.mark.parametrize(
    ("switches", "emulators"),
    [
        ({}, (SEV,)),
        ({"sev": "N", "sev_es": "0"}, (SEV,)),
        (ON, (Emulator("x86_64"),)),
        (ON, (Emulator("x86_64", sev=Sev(1, 1), launch_security=frozenset()),)),
    ],
    ids=("no-parameter", "off", "no-emulator-has-it", "no-protection-listed"),
)
def test_host_without_any_encryption_has_none(switches, emulators):
    assert read_encryption(KernelAnswer(switches), emulators).value is None


def test_what_libvirt_does_not_count_the_kernel_does():
    one = Emulator("x86_64", sev=Sev(None, None))
    assert contexts(ON, one, capacities="sev 9\nsev_es 410\n") == {"sev": 9, "sev_es": 410}
    assert contexts(ON, one, capacities="sev 9\n") == {"sev": 9, "sev_es": 0}
    assert contexts(ON, one) == {"sev": None, "sev_es": None}


def test_without_domain_capabilities_the_kernel_alone_is_believed():
    assert contexts(ON, capacities="sev 9\nsev_es 410") == {"sev": 9, "sev_es": 410}


def test_a_newer_libvirt_says_what_it_can_protect():
    switches = {**ON, "sev_snp": "Y", "tdx": "Y"}
    assert set(
        contexts(switches, Emulator("x86_64", sev=Sev(1, 2), launch_security=frozenset({"sev"})))
    ) == {"sev", "sev_es"}
    assert contexts(
        switches, Emulator("x86_64", launch_security=frozenset({"tdx"})), capacities="tdx 31"
    ) == {"tdx": 31}


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (KernelAnswer({"sev": "maybe"}), "the kernel's parameter sev: 'maybe' is neither Y nor N"),
        (KernelAnswer(ON, "sev"), "misc.capacity: 'sev' is not a list"),
    ],
    ids=("switch", "capacity"),
)
def test_texts_of_the_kernel_that_make_no_sense_are_named(answer, what):
    reading = read_encryption(answer, (SEV,))
    assert reading.value is None
    assert reading.faults[0].startswith(what)


def test_contexts_of_sev_are_none_of_tdx():
    assert contexts({"tdx": "Y"}, SEV, capacities="tdx 31") == {"tdx": 31}
