"""Idle attempts: an attempt of an audit that found nothing to do, with everything that its shape
and its plan follow from.

While these values are equal, shape and plan come to the same result, so that the next attempt takes
the result of the idle one. The tree in Placement, the records and the allocations are looked at in
every attempt all the same.
"""

from dataclasses import dataclass, replace
from typing import Self

from agent.audit.devices import DriverTree
from agent.audit.shape import Observed
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.provider_tree import DesiredTree
from agent.placement.merge import Target, Usages
from agent.placement.plan import Plan
from agent.placement.server import left_out_traits
from agent.tracker.domains import guest_places
from agent.tracker.node_state import NodeView
from agent.tree.desired_tree import DriverReport
from agent.tree.reported_cards import DeviceUses
from agent.tree.reshape.allocation_editor import GuestPlaces


@dataclass(frozen=True, slots=True)
class IdleAttempt:
    """An attempt with an empty plan, in a process whose options do not change."""

    observed: Observed
    target: Target
    plan: Plan
    _places: GuestPlaces

    @classmethod
    def of(cls, observed: Observed, target: Target, plan: Plan) -> Self | None:
        """Return the attempt if the same inputs would lead to the same plan; None if the next
        attempt has to look again.
        """
        # What is held until it is free depends on usages, and a question about the consumers of
        # providers that shrink has to be asked each time.
        looks_again = observed.usages or observed.devices.asked or observed.move is not None
        if looks_again or plan.operations or plan.limited or plan.drift:
            return None
        facts = observed.report.facts
        places = guest_places(observed.records.state, facts.domains or ())
        return cls(observed, target, plan, places)

    def has_state(self, view: PlacementView, journal: Journal) -> bool:
        """Return whether Placement has, and the agent owns, the same as in this attempt."""
        known = self.observed
        return (
            known.view.above == view.above
            and known.view.tree.same_contents(view.tree)
            and known.journal == journal
        )

    def has_inputs(
        self,
        report: DriverReport,
        uses: DeviceUses,
        places: GuestPlaces,
        usages: Usages,
        capabilities: ServerCapabilities,
        now: float,
    ) -> bool:
        """Return whether the driver and the server say the same as in this attempt, and the same
        guests have the same devices and are on the same cells.

        To be asked only where :meth:`has_state` holds.
        """
        known = self.observed
        return (
            not usages
            and known.capabilities == capabilities
            # A trait that the server did not know may have to be looked up again.
            and left_out_traits(capabilities, now) == capabilities.unknown_traits
            and known.uses == uses
            and known.report.capabilities == report.capabilities
            and known.report.shape_all == report.shape_all
            # Neither shape nor plan depends on their time.
            and known.report.facts.same_but_for_time(report.facts)
            and self._places == places
        )

    def has_tree(self, desired: DesiredTree) -> bool:
        """Return whether the driver shaped the same tree as in this attempt."""
        return self.observed.driver_tree.desired.same_contents(desired)

    def repeated(self, report: DriverReport, records: NodeView, view: PlacementView) -> Observed:
        """Return what this attempt observed, for an attempt that comes to the same."""
        return replace(self.observed, report=report, records=records, view=view, idle=True)

    @property
    def driver_tree(self) -> DriverTree:
        """The tree of the driver, and the tree from which the driver started."""
        return self.observed.driver_tree
