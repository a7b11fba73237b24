"""Fits whose time grew with the number of like devices, or with all sets of cells: seconds to
minutes each, on hosts of today.

The search went through devices, and gave them out anew for every set of cells. Now it goes through
lots of like devices, and leaves out whole families of sets. The rows are those of the bench; steps
are bounded where they are counted, so that no row depends on time.
"""

import pytest

from bench.numa_fit import CASES, Case, near_limit, of_chance


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_every_row_of_the_bench_is_decided(case: Case) -> None:
    expected = {
        "impossible": "no: devices",
        "9 VFs wanted": "no: devices",
        "PCI unsatisfiable": "no: devices",
        "one cell full": "no: matching",
    }
    networks = {"physnet on a full cell": "no: networks", "30 networks": "no: networks"}
    words = next(
        (said for part, said in {**expected, **networks}.items() if part in case.name), "fits"
    )
    assert case.fit() == words


def test_no_fit_by_chance_is_given_up() -> None:
    assert "undecided" not in {of_chance(number).fit() for number in range(100)}


def test_no_fit_that_wants_about_all_devices_is_given_up() -> None:
    assert "undecided" not in {near_limit(number).fit() for number in range(100)}
