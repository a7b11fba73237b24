"""Options that contradict a host, and records of what the host does not offer any more. Pure."""

from collections.abc import Iterator

from agent.errors import ConfigError
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, printable
from agent.model.report import Drift
from agent.numa.host_policy import HostPolicy, not_offered
from agent.tracker.node_state import NodeState


def option_errors(facts: HostFacts, policy: HostPolicy) -> Iterator[ConfigError]:
    """Yield an error for each option that names CPUs or cells which the host does not have.

    Only checked at the start, because CPUs and cells that the host loses later are just not offered
    any more.
    """
    if facts.cpu is not None and facts.complete("cpu"):
        guests = [(guest.uuid, guest.cells) for guest in facts.domains or ()]
        yield from policy.offline(facts.cpu.online, facts.cpu.sleeping, guests)
        if facts.numa is not None and facts.complete("numa"):
            yield from policy.contradictions(facts.numa, facts.cpu.online)


def unreservable_pages(facts: HostFacts, policy: HostPolicy) -> Iterator[Drift]:
    """Yield a drift for each reservation of huge pages that the host cannot give in full. What is
    there is reserved.
    """
    if facts.numa is not None and facts.complete("numa"):
        for what, remedy in policy.unreservable(facts.numa):
            yield Drift(
                "overcommitted",
                "warning",
                f"{what}; what is there is reserved",
                remedy,
            )


def nothing_left(facts: HostFacts, reserved_mib: int) -> Iterator[Drift]:
    """Yield a drift if all the memory of the host is reserved. nova goes on, too."""
    if facts.complete("memory") and facts.memory_mib and reserved_mib == facts.memory_mib:
        yield Drift(
            "disabled",
            "warning",
            f"[DEFAULT] reserved_host_memory_mb: all {reserved_mib} of MEMORY_MB are reserved: no "
            f"guest is scheduled to {printable(facts.name)}",
            "lower it",
        )


def lost_resources(state: NodeState, policy: HostPolicy) -> Iterator[Drift]:
    """Yield a drift for each unit that is gone and that a claim has, and for guests whose CPUs the
    operator does not offer any more. All of it stays counted.
    """
    name = printable(state.node.name)
    for unit in state.units.values():
        if not unit.present and unit.holder is not None:
            guest = state.claims[unit.holder].instance if unit.holder in state.claims else None
            yield Drift(
                "held-device",
                "warning",
                f"unit {printable(unit.identifier)} of class {unit.resource_class} is gone from "
                f"node {name}, and claim {unit.holder} has it",
                "configure it again, or move the guest away",
                unit.provider,
                guest,
            )
    guests = [
        (claim.instance, claim.cells)
        for claim in state.claims.values()
        if claim.purpose != "devices"
    ]
    for error in not_offered(policy, guests):
        guest = error.data.get("guest")
        yield Drift(
            "guest-conflict",
            "warning",
            f"node {name}: {error.message}",
            error.remedy,
            state.node.uuid,
            ConsumerUuid(guest) if guest else None,
        )
