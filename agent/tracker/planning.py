"""What a claim gets of a node, worked out while neither the node nor the store is held for it,
because that may take long.

A claim is planned in its transaction. If part of the plan takes long and was not worked out for the
node as it is now, the plan is broken off, that part is worked out with nothing held, and the claim
begins again. What was worked out counts only for that very state of the node.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.guest import PciPolicy
from agent.pci.device_request import EXTRA_SPEC
from agent.tracker.node_state import NodeState
from agent.tracker.reserving import GuestRequest, Reservation, guest_topology, only_devices, reserve

Answer = TypeVar("Answer")


class NotPlannedYet(Exception):
    """Something has to be worked out before the plan can be made: ``work`` does it, for that
    ``state`` of a node.
    """

    def __init__(self, state: NodeState, asked: object, work: Callable[[], object]) -> None:
        super().__init__()
        self.state, self.asked, self.work = state, asked, work


class ClaimPlanner:
    """Works out everything when it is asked."""

    def reserve(self, state: NodeState, wanted: GuestRequest) -> Reservation:
        """See :func:`agent.tracker.reserving.reserve`."""
        return reserve(state, wanted)

    def only_devices(
        self,
        state: NodeState,
        requests: tuple[DeviceRequest, ...],
        cells: frozenset[int],
        policy: PciPolicy | None,
    ) -> tuple[tuple[DeviceRecord, DeviceRequest], ...]:
        """See :func:`agent.tracker.reserving.only_devices`."""
        return only_devices(state, requests, cells, policy)


AT_ONCE = ClaimPlanner()


class LocklessPlanner(ClaimPlanner):
    """Of one claim: breaks its plan off where something takes long that was not worked out before.

    ``count``: how often something was worked out. ``in_turn``: whether it is the claim's turn to do
    so on its node.
    """

    def __init__(self) -> None:
        self.count = 0
        self.in_turn = False
        self._state: NodeState | None = None
        self._asked: object = None
        self._answer: object = None

    def work_out(self, missing: NotPlannedYet) -> None:
        """Do what a plan was broken off for.

        :raises TrackerError: it cannot be had.
        """
        self.count += 1
        self._answer = missing.work()
        self._state, self._asked = missing.state, missing.asked

    def reserve(self, state: NodeState, wanted: GuestRequest) -> Reservation:
        """What was worked out, or at once if that is quick.

        :raises Unplanned: it was not worked out.
        """
        floats = (
            not wanted.devices
            and EXTRA_SPEC not in wanted.flavor.extra_specs
            and guest_topology(wanted.flavor, wanted.image_properties) is None
        )
        return (
            reserve(state, wanted)
            if floats
            else self._known(state, wanted, lambda: reserve(state, wanted))
        )

    def only_devices(
        self,
        state: NodeState,
        requests: tuple[DeviceRequest, ...],
        cells: frozenset[int],
        policy: PciPolicy | None,
    ) -> tuple[tuple[DeviceRecord, DeviceRequest], ...]:
        """What was worked out.

        :raises Unplanned: it was not worked out.
        """
        return self._known(
            state, (requests, cells, policy), lambda: only_devices(state, requests, cells, policy)
        )

    def _known(self, state: NodeState, asked: object, work: Callable[[], Answer]) -> Answer:
        # The very same object, because any change of the node or of its host makes another one.
        if self._state is not state or self._asked != asked:
            raise NotPlannedYet(state, asked, work)
        return cast(Answer, self._answer)
