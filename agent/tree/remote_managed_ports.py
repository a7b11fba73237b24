"""Ports that another processor programs can be had only where functions are offered that it programs: resource-tracker.md 5.1."""

from dataclasses import replace

import os_traits

from agent.tree.desired_tree import DriverReport
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree

TRAIT = os_traits.COMPUTE_REMOTE_MANAGED_PORTS


def with_remote_managed_ports(driver_report: DriverReport, offered: bool | None, present: ProviderTree, root: ProviderUuid) -> DriverReport:
    """``driver_report`` with that capability only if such functions are ``offered``, free or not; if nobody knows (None), as ``present`` has it."""
    known = {**(driver_report.facts.traits or {}), **driver_report.capabilities}
    if not known.get(TRAIT):
        return driver_report
    last = present.exists(root) and present.has_traits(root, [TRAIT])
    return replace(driver_report, capabilities={**driver_report.capabilities, TRAIT: last if offered is None else offered})
