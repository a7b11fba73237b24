"""``agent takeover undo``: gives the nodes of this host back to nova-compute."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import Any

from oslo_config import cfg

from agent.audit.giving_back import GivenBack, give_back
from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import open_run_store, start_fleet
from agent.cli.command import Commands, Options
from agent.cli.output import answer, write, write_document
from agent.conf.default import host_name, only_observes
from agent.errors import ConfigError, ConfigErrors
from agent.model.finding import CHANGED, DONE, PARTLY
from agent.model.mirror import Name
from agent.model.names import ProviderUuid, choose_nodes, name_first, number_of, printable
from agent.model.report import exit_code
from agent.render.document import remedy_lines
from agent.render.json_report import report_document
from agent.render.look import look_of, to_string
from agent.render.text import render_report
from agent.store.store import Store
from agent.tracker.nova_commands import PLACEMENT, if_unknown, unset
from agent.tree.policy import NOVA_PROVIDER_CONFIG

SCHEMA = "compute-node-agent/takeover-undo/1"
LOST = (
    "if the store was lost, have the agent take over what Placement has, and then undo that: "
    "agent --once --adopt"
)


def undo_takeover(conf: cfg.ConfigOpts, options: Options) -> int:
    """Give back every node of which the store's journal has something as the agent's, or those that
    ``--node`` names. Without ``--yes`` only the plan is shown. Return the exit code.

    :raises ConfigErrors: the agent only observes, or there is no such node.
    :raises StoreLocked: an agent runs that manages the nodes, and would write them again.
    :raises AgentError: the configuration, the store or Placement cannot be used.
    """
    dry_run = options.dry_run or not options.arguments["yes"]
    if only_observes(conf) and not dry_run:
        raise ConfigError(
            "[DEFAULT] mode = observe: the agent writes nothing, and so cannot give back",
            "set mode to manage, as it was while the agent managed this host",
        )
    # For the plan of an agent that observes: it is that of the journal.
    conf.set_override("mode", "manage")
    as_nova_reports(conf)
    components = build_components(conf, cancelled := Event(), daemon=False)
    with ExitStack() as stack:
        store = stack.enter_context(open_run_store(conf, dry_run=dry_run))
        nodes = _nodes(store, host_name(conf), options)
        if not nodes:
            return _nothing(conf, options, dry_run=dry_run)
        fleet = stack.enter_context(
            start_fleet(conf, components, store, cancelled, dry_run=dry_run, gives_back=True)
        )
        given = give_back(fleet, nodes, dry_run=dry_run)
    report = given.report
    code = exit_code(report.nodes, report.errors, detailed=options.detailed_exitcode)
    if not dry_run and given.complete != nodes.keys() and code in (DONE, CHANGED):
        code = PARTLY
    given = replace(given, report=replace(report, exit_code=code))
    if options.as_document:
        write_document(_document(given), options)
    else:
        look = look_of(sys.stdout, wide=options.wide)
        lines = "".join(f"{line}\n" for line in _lines(given, nodes, dry_run=dry_run))
        if dry_run:
            # Of the nodes that were looked at, and no others.
            chosen = shlex.join(word for node in options.nodes for word in ("--node", node))
            does = (
                f"this is the plan only, which this carries out: agent takeover undo --yes {chosen}"
            )
            lines += to_string(remedy_lines(does.rstrip(), look, ""), look)
        write(render_report(given.report, look) + lines)
    return code


def as_nova_reports(conf: cfg.ConfigOpts) -> None:
    """Set the options that nova-compute does not have to what it does."""
    for name, value in {
        "tree_layout": "flat",
        "numa_mode": "mixed",
        "memory_page_classes": False,
        "counted_on_root": [],
        "owner_trait": "OWNER_NOVA",
    }.items():
        conf.set_override(name, value, "compute")
    # The status trait goes if the agent has set it: nova-compute sets it by its service's record.
    conf.set_override("enabled", True)
    where = conf.get_location("provider_config_location", "compute")
    if where is not None and where.location is cfg.Locations.opt_default:
        conf.set_override("provider_config_location", str(NOVA_PROVIDER_CONFIG), "compute")


def _nodes(store: Store, host: str, options: Options) -> Mapping[ProviderUuid, str]:
    """Return the nodes of which the journal has something, by uuid, with their names.

    :raises ConfigErrors: ``--node`` names another one.
    """
    roots = store.roots(host)
    names: dict[ProviderUuid, str] = {root: str(root) for root in sorted(roots)}
    for endpoint, root in store.views():
        view = store.view(endpoint, root) if root in roots else None
        if view is not None and view.tree.exists(root):
            names[root] = view.tree.name_of(root)
    chosen, unmatched = choose_nodes(names.items(), options.nodes, lambda node: node)
    if unmatched and names:
        there = printable(name_first([*names.values()]))
        raise ConfigErrors(
            [
                ConfigError(
                    f"--node {printable(name)}: nothing of such a node is the agent's",
                    f"it has {there}",
                )
                for name in unmatched
            ]
        )
    return dict(chosen)


def _nothing(conf: cfg.ConfigOpts, options: Options, *, dry_run: bool) -> int:
    done = {"given_back": [], "released": {}, "kept": {}, **_names(), "left_providers": []}
    what = f"{host_name(conf)}: by this store nothing in Placement is the agent's"
    look = look_of(sys.stdout)
    text = f"{printable(what)}: there is nothing to undo\n"
    text += to_string(remedy_lines(LOST, look), look)
    return answer(options, SCHEMA, {"dry_run": dry_run, "nodes": [], **done}, text)


def _document(given: GivenBack) -> dict[str, Any]:
    """Return the document: that of an audit, with what was done beside its operations."""
    document = report_document(given.report)
    more = {
        "given_back": sorted(given.complete),
        "released": given.released,
        "kept": {consumer: sorted(cards.values()) for consumer, cards in given.kept.items()},
        **_names(given.deleted, given.left),
        "left_providers": [{"uuid": uuid, "name": name} for uuid, name in given.providers.items()],
    }
    return {**document, "schema": SCHEMA, **more}


def _names(deleted: Sequence[Name] = (), left: Sequence[Name] = ()) -> dict[str, Any]:
    return {"deleted": _by_kind(deleted), "left": _by_kind(left)}


def _by_kind(names: Sequence[Name]) -> dict[str, list[str]]:
    return {
        "traits": [text for kind, text in names if kind == "trait"],
        "classes": [text for kind, text in names if kind == "class"],
    }


def _lines(given: GivenBack, nodes: Mapping[ProviderUuid, str], *, dry_run: bool) -> Iterator[str]:
    for consumer, cards in given.released.items():
        verb = "would lose" if dry_run else "lost"
        yield f"consumer {consumer} {verb} {printable(name_first([*cards]))}"
    for consumer, kept in given.kept.items():
        for uuid, card in kept.items():
            yield (
                f"consumer {consumer} keeps {printable(card)}, because no record knows it; if "
                f"nothing needs it: {if_unknown(consumer, unset(consumer, [uuid]))}"
            )
    for kind, name in given.deleted:
        done = "to be deleted, unless another provider has it" if dry_run else "deleted"
        yield f"{kind} {name}: {done}"
    for uuid, provider in given.providers.items():
        yield (
            f"provider {printable(provider)} stays, because others have something on it or below "
            f"it; once that is gone: {PLACEMENT} resource provider delete {uuid}"
        )
    for kind, name in given.left:
        what = "trait" if kind == "trait" else "resource class"
        yield (
            f"{kind} {name} stays, because an operator or nova-compute may have made it; if "
            f"nothing asks for it: {PLACEMENT} {what} delete {name}"
        )
    if dry_run:
        return
    if given.complete == nodes.keys():
        done = number_of(len(nodes), "node")
        yield f"{done} given back; keep this agent from starting again, and start nova-compute"
    else:
        yield (
            "not everything is given back: see the errors, drift and consumers above, and run the "
            "command again"
        )


RUN: Commands = {
    ("takeover", "undo"): undo_takeover,
}
