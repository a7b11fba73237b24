"""``agent driver check`` and ``pci check``: whether a driver keeps the promises of the driver
interface, and the devices that each object of ``[pci] device_spec`` offers.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from threading import Event

from oslo_config import cfg

from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import open_run_store, start_driver
from agent.cli.command import Commands, Options
from agent.cli.output import answer, write, write_document
from agent.conformance.suite import check_conformance
from agent.driver import interface as drivers
from agent.driver.answers import chosen_nodes, managed_nodes, node_facts
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.report import CHANGED, DONE, FAILED, PARTLY
from agent.pci.settings import PciSettings, PresentDevices, match_devices
from agent.render.checks import Document, aliases_document, devices_document, render_pci_check
from agent.render.conformance import conformance_document, render_conformance
from agent.render.json_report import error_rows, problems_of
from agent.render.look import look_of
from agent.tree.policy import MdevPolicy
from agent.tree.reported_cards import cards, problems


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
    if options.as_document:
        write_document(conformance_document(found, code), options)
    else:
        write(render_conformance(found, look_of(sys.stdout, wide=options.wide)))
    return code


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
        nodes = [
            _node(
                uuid,
                name,
                lambda node: node_facts(*driver, node, conf.compute.facts_deadline),
                parts.pci,
                parts.policy.mdev,
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
        "aliases": aliases_document(parts.pci.aliases),
    }
    text = render_pci_check(document, look_of(sys.stdout))
    return answer(options, SCHEMA, document, text, code)


def _node(
    uuid: str, name: str, facts_of: Facts, settings: PciSettings, policy: MdevPolicy
) -> Document:
    """Return the document of one node. An error of the node is part of it, so that the others are
    shown.
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
        **devices_document(ProviderUuid(uuid), facts.pci or (), settings),
        "errors": errors,
    }


def _wrong(facts: HostFacts, settings: PciSettings, policy: MdevPolicy) -> Iterator[ConfigError]:
    """Yield the errors because of which an agent would not start on this node."""
    yield from settings.misfits(facts)
    if settings.report:
        for card in cards(match_devices(PresentDevices.of(facts.pci or ()), settings.specs)):
            yield from problems(card, facts.name, policy.mediated(facts.mdev or ()))


RUN: Commands = {
    ("driver", "check"): check_driver,
    ("pci", "check"): check_pci,
}
