"""SEV and TDX in /sys, and what cannot be read of them."""

import pytest

from drivers.host import CAPACITIES, read_encryption
from drivers.host.sysfs import Sysfs
from tests.support.recorded_sysfs import RecordedSysfs

SEV, ES, SNP = (f"module/kvm_amd/parameters/{name}" for name in ("sev", "sev_es", "sev_snp"))
TDX = "module/kvm_intel/parameters/tdx"
BOTH = "sev 15\nsev_es 100"


@pytest.mark.parametrize(
    ("files", "contexts", "fault"),
    [
        *(
            ({SEV: "Y", ES: "Y", SNP: "N", file: BOTH}, {"sev": 15, "sev_es": 100}, "")
            for file in CAPACITIES
        ),
        # SNP has the contexts of ES.
        (
            {SEV: "1", ES: "1", SNP: "1", CAPACITIES[0]: BOTH},
            {"sev": 15, "sev_es": 100, "sev_snp": 100},
            "",
        ),
        # The firmware left none of SEV.
        ({SEV: "Y", ES: "Y", CAPACITIES[0]: "sev_es 509"}, {"sev": 0, "sev_es": 509}, ""),
        # Without the controller nobody says how many there are.
        ({SEV: "Y", ES: "N"}, {"sev": None}, ""),
        ({TDX: "Y", CAPACITIES[0]: "tdx 31"}, {"tdx": 31}, ""),
        ({}, None, ""),
        ({SEV: "N", ES: "0", CAPACITIES[0]: "garbled, but nobody asks"}, None, ""),
        ({SEV: "maybe", CAPACITIES[0]: "sev 15"}, None, f"{SEV}: 'maybe' is neither Y nor N"),
        (
            {SEV: "Y", CAPACITIES[0]: "sev max"},
            None,
            f"{CAPACITIES[0]}: 'sev max' is not a list of names and numbers",
        ),
    ],
)
def test_techniques_that_are_on_have_their_contexts_and_what_makes_no_sense_is_named(
    tmp_path, files, contexts, fault
):
    tree = RecordedSysfs(tmp_path / "sys")
    for file, text in files.items():
        tree.write(file, text)
    reading = read_encryption(Sysfs(tree.root))
    assert (reading.value and reading.value.contexts) == contexts
    assert reading.faults == ((f"{tree.root}/{fault}",) if fault else ())
