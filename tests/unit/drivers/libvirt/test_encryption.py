"""Encrypted guests: what the kernel switched on, and what libvirt can give."""

import pytest

from agent.model.host_units import EncryptionFacts
from agent.tree.children import offered
from agent.tree.policy import EncryptionPolicy
from drivers.libvirt.domain_capabilities import Emulator, Sev, read_encryption
from drivers.libvirt.raw_capabilities import KernelAnswer

SEV = Emulator("x86_64", sev=Sev(15, 100))
ON = {"sev": "Y\n", "sev_es": "1"}


UNCOUNTED = Emulator("x86_64", sev=Sev(None, None))
ALL = {**ON, "sev_snp": "Y", "tdx": "Y"}


@pytest.mark.parametrize(
    ("switches", "emulators", "capacities", "contexts"),
    [
        (ON, (SEV,), None, {"sev": 15, "sev_es": 100}),
        # What libvirt does not count the kernel does.
        (ON, (UNCOUNTED,), "sev 9\nsev_es 410\n", {"sev": 9, "sev_es": 410}),
        (ON, (UNCOUNTED,), "sev 9\n", {"sev": 9, "sev_es": 0}),
        (ON, (UNCOUNTED,), None, {"sev": None, "sev_es": None}),
        # Without domain capabilities the kernel alone is believed.
        (ON, (), "sev 9\nsev_es 410", {"sev": 9, "sev_es": 410}),
        # A newer libvirt says what it can protect.
        (
            ALL,
            (Emulator("x86_64", sev=Sev(1, 2), launch_security=frozenset({"sev"})),),
            None,
            {"sev": 1, "sev_es": 2},
        ),
        (
            ALL,
            (Emulator("x86_64", launch_security=frozenset({"tdx"})),),
            "tdx 31",
            {"tdx": 31},
        ),
        # Contexts of SEV are none of TDX.
        ({"tdx": "Y"}, (SEV,), "tdx 31", {"tdx": 31}),
        # No parameter, off, no emulator that has it, no protection that is listed.
        ({}, (SEV,), None, {}),
        ({"sev": "N", "sev_es": "0"}, (SEV,), None, {}),
        (ON, (Emulator("x86_64"),), None, {}),
        (ON, (Emulator("x86_64", sev=Sev(1, 1), launch_security=frozenset()),), None, {}),
    ],
)
def test_a_technique_has_the_contexts_that_libvirt_or_the_kernel_says(
    switches, emulators, capacities, contexts
):
    reading = read_encryption(KernelAnswer(switches, capacities), emulators)
    assert reading.faults == ()
    assert (reading.value.contexts if reading.value else {}) == contexts


def test_sev_snp_has_the_contexts_of_sev_es_which_is_left_none():
    reading = read_encryption(KernelAnswer({**ON, "sev_snp": "Y"}), (SEV,))
    assert offered(EncryptionFacts(reading.value.contexts), EncryptionPolicy()) == {
        "sev": 15,
        "sev_snp": 100,
    }


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
