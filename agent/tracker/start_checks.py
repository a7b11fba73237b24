"""The conditions under which an agent must not start on a node. Pure."""

from collections.abc import Iterator

from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.facts import HostFacts
from agent.model.names import printable
from agent.numa.host_policy import HostPolicy, check_present_guests
from agent.tracker.node_state import NodeState


def option_errors(facts: HostFacts, policy: HostPolicy) -> Iterator[ConfigError]:
    """Yield an error for each option that names CPUs or cells which the host does not have.

    Only checked at the start, because CPUs and cells that the host loses later are just not offered
    any more.
    """
    if facts.cpu is not None and facts.complete("cpu"):
        yield from policy.offline(facts.cpu.online, facts.cpu.sleeping)
        if facts.numa is not None and facts.complete("numa"):
            yield from policy.contradictions(facts.numa, facts.cpu.online)


def check_start(state: NodeState, policy: HostPolicy) -> None:
    """Check that the records of a node allow a start.

    :raises ConfigErrors: units that are assigned are gone; guests have CPUs that are not offered.
    """
    name = printable(state.node.name)
    errors = [
        ConfigError(
            (
                f"unit {printable(unit.identifier)} of class {unit.resource_class} is gone from "
                f"node {name}, and claim {unit.holder} has it"
            ),
            "configure it again, or remove the guest first",
        )
        for unit in state.units.values()
        if not unit.present and unit.holder is not None
    ]
    with gathering(errors):
        check_present_guests(
            policy,
            [
                (claim.instance, claim.cells)
                for claim in state.claims.values()
                if claim.purpose != "devices"
            ],
        )
    ConfigErrors.raise_if_any(errors)
