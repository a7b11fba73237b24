"""``agent driver check`` and ``pci check``: whether a driver keeps the promises of the driver
interface, and the devices that each object of ``[pci] device_spec`` offers.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from threading import Event
from typing import Any

from oslo_config import cfg

from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import open_run_store, start_driver
from agent.cli.command import Commands, Options
from agent.cli.output import answer
from agent.conformance.check import CheckedPromise, PromiseState
from agent.conformance.suite import Conformance, check_conformance
from agent.driver import interface as drivers
from agent.driver.answers import chosen_nodes, managed_nodes, node_facts
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError
from agent.model.facts import HostFacts
from agent.model.finding import CHANGED, DONE, FAILED, PARTLY
from agent.model.names import ProviderUuid, number_of, printable
from agent.pci.settings import PciSettings, PresentDevices, match_devices
from agent.render.checks import Offered, aliases_document, devices_document, render_pci_check
from agent.render.document import Document, error_rows, problems_of
from agent.render.look import Look, Text, escape_text, look_of, to_string, wrap_line
from agent.tree.policy import MdevPolicy
from agent.tree.reported_cards import cards, problems

CONFORMANCE_SCHEMA = "compute-node-agent/driver-check/1"
SHOWN = 10
"""How many breaches of one promise the text shows."""
_STYLES: dict[PromiseState, str] = {
    "held": "green",
    "broken": "red",
    "unchecked": "yellow",
    "not-applicable": "dim",
}


def render_conformance(conformance: Conformance, look: Look) -> str:
    """Return the text of the command."""
    lines: list[Text] = []
    for promise in conformance.promises:
        if promise.state != "not-applicable" or look.wide:
            lines += _promise_lines(promise, look)
    for note in conformance.notes:
        lines += wrap_line(escape_text(f"{look.signs.dot} {note}", "yellow"), look)
    closing = Text.assemble(escape_text(f"{conformance.driver}: "), *_closing(conformance))
    return to_string([*lines, Text(), *wrap_line(closing, look)], look)


def _promise_lines(promise: CheckedPromise, look: Look) -> Iterator[Text]:
    signs = {"held": look.signs.good, "broken": look.signs.bad, "unchecked": "?"}
    style = _STYLES[promise.state]
    head = Text.assemble(
        (f"{signs.get(promise.state, look.signs.dot)} ", style), (promise.check.name, "bold"), "  "
    )
    yield from wrap_line(Text.assemble(head, escape_text(promise.check.promise)), look)
    if promise.note:
        yield from wrap_line(escape_text(f"    {promise.state}: {promise.note}", style), look)
    for breach in promise.breaches[:SHOWN]:
        yield from wrap_line(escape_text(f"    {breach}", style), look)
    if len(promise.breaches) > SHOWN:
        yield Text(f"    and {len(promise.breaches) - SHOWN} more", style)
    if promise.state == "broken":
        remedy = f"  {look.signs.change} {promise.check.remedy}"
        yield from wrap_line(escape_text(remedy, style), look)


def _closing(conformance: Conformance) -> Sequence[Text]:
    parts = [Text(f"{number_of(len(conformance.having('held')), 'promise')} held", "green")]
    states: tuple[PromiseState, ...] = ("broken", "unchecked")
    for state in states:
        if found := conformance.having(state):
            parts.append(Text(f", {len(found)} {state}", _STYLES[state]))
    parts.append(Text(f", {len(conformance.having('not-applicable'))} not applicable"))
    checked = len(conformance.checked)
    nodes = number_of(conformance.listed, "node")
    sample = nodes if checked == conformance.listed else f"{checked} of {nodes}; --all for all"
    return [*parts, Text(f" ({sample})")]


def check_driver(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the driver, and show each promise with what breaks it. Return the exit code: CHANGED if
    a promise is broken, PARTLY if one could not be checked.
    """
    called = drivers.canonical_name(options.arguments["driver"])
    # What a driver prints must not be in the document.
    with redirect_stdout(sys.stderr):
        found = check_conformance(
            called,
            lambda: drivers.load(called, conf),
            conf,
            nodes=options.nodes,
            every_node=options.arguments["all"],
        )
    code = CHANGED if found.having("broken") else PARTLY if found.having("unchecked") else DONE
    text = render_conformance(found, look_of(sys.stdout, wide=options.wide))
    document: dict[str, Any] = {
        "driver": found.driver,
        "nodes": {"listed": found.listed, "checked": list(found.checked)},
        "checks": [
            {
                "check": promise.check.name,
                "promise": promise.check.promise,
                "state": promise.state,
                "breaches": [asdict(breach) for breach in promise.breaches],
                "note": promise.note,
                "remedy": promise.check.remedy if promise.state == "broken" else "",
            }
            for promise in found.promises
        ],
        "notes": list(found.notes),
    }
    return answer(options, CONFORMANCE_SCHEMA, document, text, code)


SCHEMA = "compute-node-agent/pci-check/1"

Facts = Callable[[str], HostFacts]


def check_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the whole configuration, and show which devices it offers of those that the driver
    finds now. Return the exit code.

    :raises AgentError: the configuration is wrong, or the driver does not list its nodes.
    """
    cancelled = Event()
    parts = build_components(conf, cancelled, daemon=False)
    with (
        open_run_store(conf, dry_run=True) as store,
        start_driver(conf, parts, store, cancelled, dry_run=True) as own,
    ):
        driver = parts.driver, parts.worker, parts.driver_name
        found, errors = chosen_nodes(
            managed_nodes(*driver, conf.compute.facts_deadline), options.nodes, parts.driver_name
        )
        ConfigErrors.raise_if_any(errors)
        offered: list[Offered] = []
        nodes = [
            _node(
                uuid,
                name,
                lambda node: node_facts(*driver, node, conf.compute.facts_deadline),
                parts.pci,
                parts.policy.mdev,
                offered,
            )
            for uuid, name in found.items()
        ]
    if own is not None and own.source == "made up":
        nodes = [{**node, "uuid": None} for node in nodes]
    wrong = [node for node in nodes if node["errors"]]
    code = DONE if not wrong else PARTLY if len(wrong) < len(nodes) else FAILED
    document = {
        "notice": "; ".join(parts.notes),
        "report_in_placement": parts.pci.report,
        "nodes": nodes,
        "aliases": aliases_document(parts.pci, offered),
    }
    text = render_pci_check(document, look_of(sys.stdout))
    return answer(options, SCHEMA, document, text, code)


def _node(
    uuid: str,
    name: str,
    facts_of: Facts,
    settings: PciSettings,
    policy: MdevPolicy,
    offered: list[Offered],
) -> Document:
    """Return the document of one node, and add the devices that guests may have to ``offered``. An
    error of the node is part of it, so that the others are shown.
    """
    nothing = {"name": name, "uuid": uuid, "specs": [], "devices": []}
    try:
        facts = facts_of(name)
        if not facts.complete("pci"):
            raise DriverError(
                (
                    f"node {printable(name)}: its devices could not be read fully: "
                    f"{printable(facts.incomplete['pci'])}"
                ),
                "see to the host first",
            )
    except AgentError as error:
        return {**nothing, "errors": error_rows(problems_of(error))}
    wrong = tuple(_wrong(facts, settings, policy))
    errors = error_rows(problems_of(ConfigErrors(wrong))) if wrong else []
    return {
        **nothing,
        **devices_document(ProviderUuid(uuid), facts, settings, offered),
        "errors": errors,
    }


def _wrong(facts: HostFacts, settings: PciSettings, policy: MdevPolicy) -> Iterator[ConfigError]:
    """Yield the errors because of which an agent would not start on this node."""
    yield from settings.misfits(facts.known_devices)
    if settings.report:
        for card in cards(match_devices(PresentDevices.of(facts.pci or ()), settings.specs)):
            yield from problems(card, facts.name, policy.mediated(facts.mdev or ()))


RUN: Commands = {
    ("driver", "check"): check_driver,
    ("pci", "check"): check_pci,
}
