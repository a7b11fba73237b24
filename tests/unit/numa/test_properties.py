"""Properties of the fit, against an oracle. Under soak the oracle decides NUMA_EXAMPLES cases, by
default a hundred thousand.
"""

import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from agent.model.instance import Guest
from agent.numa.fit import Fit, NoFit, fit
from agent.numa.host import HostCell, NoDeviceFit
from tests.unit.numa.cases import Case, cases
from tests.unit.numa.oracle import possible

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
some = settings(max_examples=200, deadline=None, suppress_health_check=quiet)
many = settings(max_examples=1000, deadline=None, suppress_health_check=quiet)
soaked = settings(
    max_examples=int(os.environ.get("NUMA_EXAMPLES", "100000")),
    deadline=None,
    suppress_health_check=quiet,
)


def fitted(
    case: Case, host: Sequence[HostCell] | None = None, guest: Guest | None = None
) -> Fit | NoFit:
    try:
        return fit(
            host or case.host,
            guest or case.guest,
            limits=case.limits,
            networks=case.networks,
            devices=case.new_devices(),
        )
    except NoFit as reason:
        return reason


@pytest.mark.long
@some
@given(cases())
def test_a_fit_takes_only_what_is_free(case):
    found = fitted(case)
    if isinstance(found, NoFit):
        return
    host = {cell.id: cell for cell in case.host}
    assert (
        len({cell.host_cell for cell in found.cells}) == len(found.cells) == len(case.guest.cells)
    )
    for index, (cell, wanted) in enumerate(zip(found.cells, case.guest.cells, strict=True)):
        there = host[cell.host_cell]
        assert cell.cell == wanted
        assert set(cell.pins) == wanted.dedicated
        assert len(set(cell.pins.values())) == len(cell.pins)
        assert len(cell.reserved) == case.guest.emulator_cpus(index)
        assert not cell.reserved & set(cell.pins.values())
        assert cell.pinned_cpus <= there.dedicated - there.pinned
        for pool in there.with_guest(cell).pages:
            assert pool.size_kib != cell.page_size_kib or pool.free >= 0 or case.guest.pages is None


def is_found_exactly_if_there_is_one(case: Case) -> None:
    found = fitted(case)
    event(found.failed if isinstance(found, NoFit) else f"fits, {len(found.cells)} cells")
    assert isinstance(found, Fit) == possible(
        case.host, case.guest, case.limits, case.networks, case.new_devices()
    )


@pytest.mark.long
@many
@given(cases())
def test_a_fit_is_found_exactly_if_there_is_one(case):
    is_found_exactly_if_there_is_one(case)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@soaked
@given(cases())
def test_again_and_again(case):
    is_found_exactly_if_there_is_one(case)


@pytest.mark.long
@some
@given(cases(), st.randoms())
def test_no_order_of_cells_changes_whether_it_fits(case, chance):
    host, cells = list(case.host), list(case.guest.cells)
    chance.shuffle(host)
    if (
        case.guest.emulator_policy != "isolate"
    ):  # because then the first guest cell needs more than the others
        chance.shuffle(cells)
    guest = replace(case.guest, cells=tuple(cells))
    assert isinstance(fitted(case), Fit) == isinstance(fitted(case, host, guest), Fit)


@pytest.mark.long
@some
@given(cases())
def test_nothing_given_is_changed(case):
    before = deepcopy((case.host, case.guest, case.limits, case.networks))
    fitted(case)
    assert (case.host, case.guest, case.limits, case.networks) == before


@pytest.mark.long
@some
@given(cases())
def test_what_is_added_and_given_back_leaves_no_trace(case):
    found = fitted(case)
    if isinstance(found, NoFit):
        return
    for cell in found.cells:
        (there,) = (one for one in case.host if one.id == cell.host_cell)
        after = there.with_guest(cell)
        assert after != there
        assert after.without_guest(cell) == there


@pytest.mark.long
@some
@given(cases())
def test_ids_of_cells_mean_nothing(case):
    ids = {cell.id: 100 - 7 * cell.id for cell in case.host}
    renamed = [
        replace(
            cell,
            id=ids[cell.id],
            distances={
                ids[other]: distance for other, distance in cell.distances.items() if other in ids
            },
        )
        for cell in case.host
    ]
    found, again = (
        fitted(replace(case, new_devices=NoDeviceFit)),
        fitted(replace(case, new_devices=NoDeviceFit), renamed),
    )
    if isinstance(found, Fit):
        assert isinstance(again, Fit)
        assert [ids[cell.host_cell] for cell in found.cells] == [
            cell.host_cell for cell in again.cells
        ]
        assert [cell.pins for cell in found.cells] == [cell.pins for cell in again.cells]
    else:
        assert isinstance(again, NoFit)
        assert again.failed == found.failed
