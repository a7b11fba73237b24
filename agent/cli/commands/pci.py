"""``agent pci check``: which of the devices that are there each object of ``[pci] device_spec`` offers."""

import sys
from collections.abc import Callable, Iterator
from threading import Event

from oslo_config import cfg

from agent.bootstrap import start_driver, build_components, open_run_store
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.tree.reported_cards import cards, problems
from agent.driver.answers import chosen_nodes, managed_nodes, node_facts
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError
from agent.model.exit_codes import DONE, FAILED, PARTLY
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.pci.matching import matched
from agent.pci.present_devices import PresentDevices
from agent.pci.settings import PciSettings
from agent.render.json_report import error_rows
from agent.render.look import look_of
from agent.render.pci_document import Document, aliases_document, devices_document
from agent.render.pci_lines import render_pci_check
from agent.render.problems import problems_of

SCHEMA = "compute-node-agent/pci-check/1"

Facts = Callable[[str], HostFacts]


def check_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the whole configuration, and show what it offers of the devices that the driver finds now.

    :raises AgentError: the configuration is wrong, or the driver does not tell its nodes.
    """
    cancelled = Event()
    parts = build_components(conf, cancelled, daemon=False)
    with open_run_store(conf, dry_run=True) as store, start_driver(conf, parts, store, cancelled, dry_run=True) as provisional:
        driver = parts.driver, parts.worker, parts.driver_name
        found, errors = chosen_nodes(managed_nodes(*driver, conf.compute.facts_deadline), options.nodes, parts.driver_name)
        if errors:
            raise ConfigErrors(errors)
        nodes = [_node(uuid, name, lambda node: node_facts(*driver, node, conf.compute.facts_deadline), parts.pci) for uuid, name in found.items()]
    if provisional:
        nodes = [{**one, "uuid": None} for one in nodes]
    wrong = [one for one in nodes if one["errors"]]
    code = DONE if not wrong else PARTLY if len(wrong) < len(nodes) else FAILED
    document = {
        "schema": SCHEMA, "notice": "; ".join(parts.notes), "report_in_placement": parts.pci.report, "nodes": nodes,
        "aliases": aliases_document(parts.pci.aliases), "errors": [], "exit_code": code,
    }  # fmt: skip
    if options.as_document:
        write_document(document, options)
    else:
        write(render_pci_check(document, look_of(sys.stdout)))
    return code


def _node(uuid: str, name: str, facts_of: Facts, settings: PciSettings) -> Document:
    """What is offered of one node; another can be well when this is not."""
    nothing = {"name": name, "uuid": uuid, "specs": [], "devices": []}
    try:
        facts = facts_of(name)
        if not facts.complete("pci"):
            raise DriverError(f"node {printable(name)}: its devices could not be read fully: {printable(facts.incomplete['pci'])}", "see to the host first")
    except AgentError as error:
        return {**nothing, "errors": error_rows(problems_of(error))}
    wrong = tuple(_wrong(facts, settings))
    errors = error_rows(problems_of(ConfigErrors(wrong))) if wrong else []
    return {**nothing, **devices_document(ProviderUuid(uuid), facts.pci or (), settings), "errors": errors}


def _wrong(facts: HostFacts, settings: PciSettings) -> Iterator[ConfigError]:
    """For what an agent would not start on this node."""
    yield from settings.misfits(facts)
    if settings.report:
        for card in cards(matched(PresentDevices.of(facts.pci or ()), settings.specs)):
            yield from problems(card, facts.name)
