"""Planning of claims: the search for a node's resources runs while neither the node nor the store
is locked, because the search may take long.

A claim is planned in its transaction. If the plan needs a long search that was not made for the
node's present state, the plan is broken off, the search is made with nothing locked, and the claim
starts again. The result of a search is only valid for that state of the node.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.guest import PciPolicy
from agent.pci.device_request import EXTRA_SPEC
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import (
    GuestRequest,
    Reservation,
    choose_devices,
    guest_topology,
    reserve,
    reserve_for,
)

Answer = TypeVar("Answer")


class NotPlannedYet(Exception):
    """A search has to be made before the claim can be planned: ``work`` makes it, for this
    ``state`` of a node and for the request ``asked``.
    """

    def __init__(self, state: NodeState, asked: object, work: Callable[[], object]) -> None:
        super().__init__()
        self.state, self.asked, self.work = state, asked, work


class ClaimPlanner:
    """Makes every search when the plan needs it."""

    def reserve(self, state: NodeState, wanted: GuestRequest) -> Reservation:
        """See :func:`agent.tracker.reserving.reserve`."""
        return reserve(state, wanted)

    def choose_devices(
        self,
        state: NodeState,
        requests: tuple[DeviceRequest, ...],
        cells: frozenset[int],
        policy: PciPolicy | None,
    ) -> tuple[tuple[DeviceRecord, DeviceRequest], ...]:
        """See :func:`agent.tracker.reserving.choose_devices`."""
        return choose_devices(state, requests, cells, policy)


AT_ONCE = ClaimPlanner()


class LocklessPlanner(ClaimPlanner):
    """The planner of one claim: breaks the plan off where it needs a long search that was not made
    yet.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of searches made."""
        self.in_turn = False
        """Whether it is the claim's turn to search on its node."""
        self._state: NodeState | None = None
        self._asked: object = None
        self._answer: object = None

    def search(self, missing: NotPlannedYet) -> None:
        """Make the search that a plan was broken off for.

        :raises TrackerError: the resources are not available.
        """
        self.count += 1
        self._answer = missing.work()
        self._state, self._asked = missing.state, missing.asked

    def reserve(self, state: NodeState, wanted: GuestRequest) -> Reservation:
        """Return the result of the search, which is made here if it is a short one.

        :raises NotPlannedYet: the search was not made yet.
        """
        guest = guest_topology(wanted.flavor, wanted.image_properties)
        if guest is None and not wanted.devices and EXTRA_SPEC not in wanted.flavor.extra_specs:
            return reserve_for(guest, state, wanted)
        return self._known(state, wanted, lambda: reserve_for(guest, state, wanted))

    def choose_devices(
        self,
        state: NodeState,
        requests: tuple[DeviceRequest, ...],
        cells: frozenset[int],
        policy: PciPolicy | None,
    ) -> tuple[tuple[DeviceRecord, DeviceRequest], ...]:
        """Return the result of the search.

        :raises NotPlannedYet: the search was not made yet.
        """
        return self._known(
            state, (requests, cells, policy), lambda: choose_devices(state, requests, cells, policy)
        )

    def _known(self, state: NodeState, asked: object, work: Callable[[], Answer]) -> Answer:
        if self._state != state or self._asked != asked:
            raise NotPlannedYet(state, asked, work)
        return cast(Answer, self._answer)
