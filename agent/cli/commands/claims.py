"""``agent claim``, ``claims``, ``migrate``, ``migrations``, ``pci cleaned`` and ``guests``: claims,
moves, migrations, the report that a device was cleaned, and the hypervisor's guests with their
records.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from oslo_config import cfg

from agent.api.client import ApiClient, ApiProblem, MoveStep
from agent.cli.command import Commands, Options
from agent.cli.configuration import load
from agent.cli.daemon_client import (
    ask_daemon_or_store,
    client,
    from_daemon,
    read_list,
    select_nodes,
    show_list,
    show_record,
)
from agent.cli.output import answer
from agent.cli.request_file import request_in
from agent.errors import ConfigError, ObservesOnly
from agent.model.devices import PciAddress
from agent.model.finding import CHANGED, DONE, FAILED, PARTLY
from agent.model.names import ConsumerUuid, is_uuid, name_first, normal_uuid, printable
from agent.model.node_records import ENDED
from agent.render.document import Document, error_rows, problems_of
from agent.render.look import Look, Text, escape_text, look_of
from agent.render.records import claim_lines, migration_lines, move_lines, render_guests

if TYPE_CHECKING:
    from agent.store.store import Store


def claim_move(conf: cfg.ConfigOpts, options: Options) -> int:
    """Claim a node's resources for a guest that moves. Return the exit code.

    :raises AgentError: the file has no request, no agent runs, or it refuses.
    """
    agent = client(conf)
    return show_record(
        options, "move", agent.create_move(request_in(options.arguments["file"], agent)), move_lines
    )


def advance_move(conf: cfg.ConfigOpts, options: Options) -> int:
    """Finish, confirm, revert or abort a move, by the command's second word. Return the exit code.

    :raises ApiProblem, ApiUnreachable: the agent refuses, or none runs.
    """
    wanted: MoveStep = next(step for step in get_args(MoveStep) if step == options.command[1])
    return show_record(
        options, "move", client(conf).take_move(options.arguments["move"], wanted), move_lines
    )


def list_claims(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the open claims, all or those of one instance. Return the exit code.

    :raises AgentError: neither daemon nor store can be read, or the instance has no claims.
    """
    instance = options.arguments["instance"]
    found = read_list(
        conf,
        options,
        "claims",
        lambda views: views.claims,
        {"instance": instance} if instance else {},
    )
    if instance and not (found.documents or found.damaged):
        raise ConfigError(
            f"--instance {printable(instance)}: this instance has no open claim",
            "see the open claims, with their instances: agent claims",
        )
    return show_list(options, "claims", found, claim_lines)


def list_migrations(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the migrations, all or those that have not ended. Return the exit code.

    :raises AgentError: neither daemon nor store can be read.
    """
    found = read_list(conf, options, "migrations", lambda views: views.migrations, {})
    shown = [
        migration
        for migration in found.documents
        if options.arguments["all"] or migration["status"] not in ENDED
    ]
    return show_list(options, "migrations", replace(found, documents=shown), migration_lines)


def create_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Claim a node's resources for a new guest. Return the exit code.

    :raises AgentError: the file has no request, no agent runs, or it refuses.
    """
    agent = client(conf)
    return show_record(
        options,
        "claim",
        agent.create_claim(request_in(options.arguments["file"], agent)),
        claim_lines,
    )


def abort_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Release a claim. Return the exit code.

    :raises ApiProblem, ApiUnreachable: the agent refuses, or none runs.
    """
    return show_record(
        options, "claim", client(conf).abort_claim(options.arguments["claim"]), claim_lines
    )


def show_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show a claim. Return the exit code.

    :raises UnknownClaim, ApiProblem: there is no such claim.
    :raises StoreError, ApiUnreachable: neither daemon nor store can be read.
    """
    claim = options.arguments["claim"]

    def of_store(store: "Store") -> Mapping[str, Any]:
        from agent.cli.without_daemon import record_views

        return record_views(conf, store).claim(claim)

    found, _ = ask_daemon_or_store(conf, options, lambda agent: agent.claim(claim), of_store)
    return show_record(options, "claim", found, claim_lines)


def mark_devices_cleaned(conf: cfg.ConfigOpts, options: Options) -> int:
    """Report to the daemon that a device was cleaned. Return the exit code.

    :raises ConfigError: the argument is not an address, or ``--node`` names several nodes.
    :raises ApiProblem, ApiUnreachable: the daemon refuses, or none runs.
    """
    try:
        address = PciAddress.parse(options.arguments["address"])
    except ValueError as error:
        raise ConfigError(str(error), "write it as 0000:81:00.0") from error
    if len(options.nodes) > 1:
        raise ConfigError("--node names several nodes", "name the one that has the device")
    return show_record(
        options,
        "device",
        client(conf).report_cleaned_device(str(address), *options.nodes),
        _cleaned_lines,
    )


def _cleaned_lines(documents: Sequence[Mapping[str, Any]], _look: Look) -> list[Text]:
    return [
        Text(
            f"device {device['address']} of node {device['node_name']} ({device['node']}) is "
            "clean; guests can have it again"
        )
        for device in documents
    ]


# In seconds: how long a command waits for the daemon to audit its nodes first.
PATIENCE = 60.0


def list_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the guests, and their records. Return the exit code.

    :raises AgentError: neither daemon nor driver can be asked, or there is no such node.
    """
    nodes = (
        None
        if options.offline
        else from_daemon(
            conf, _unless_it_observes(lambda client: select_nodes(client.guests(), options.nodes))
        )
    )
    found = _guests_here(options, imports=False, dry_run=True) if nodes is None else nodes
    return _show_guests(
        options,
        "guests",
        found,
        guests_exit_code(found, done=(), failed=()),
        from_driver=nodes is None,
    )


Ask = Callable[[ApiClient], Sequence[Document]]


def _unless_it_observes(ask: Ask) -> Callable[[ApiClient], Sequence[Document] | None]:
    """Return a function that returns what ``ask`` gets; None if the daemon only observes and keeps
    no records, so that the driver is asked here.
    """

    def asked(client: ApiClient) -> Sequence[Document] | None:
        try:
            return ask(client)
        except ApiProblem as problem:
            if problem.code != ObservesOnly.code:
                raise
            return None

    return asked


def import_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    """Import the guests without records, and show the outcome for each. Return the exit code.

    :raises AgentError: neither daemon nor driver can be asked, or there is no such node or guest.
    """
    again = [_instance(uuid) for uuid in options.arguments["again"]]

    def imported(client: ApiClient) -> Sequence[Document]:
        return _import_by_daemon(client, options, again)

    nodes = from_daemon(conf, _unless_it_observes(imported) if options.dry_run else imported)
    found = (
        _guests_here(options, imports=True, dry_run=options.dry_run, again=again)
        if nodes is None
        else nodes
    )
    shown = {guest["uuid"] for node in found for guest in node["guests"]}
    if missing := [uuid for uuid in again if uuid not in shown]:
        unknown = ConfigError(
            f"no node shows a guest {name_first(missing)}", "see those shown: agent guests list"
        )
        if not found:
            raise unknown
        # Told where the others are.
        first, *others = found
        found = [
            {**first, "errors": [*first["errors"], *error_rows(problems_of(unknown))]},
            *others,
        ]
    done = ("importable", "imported")
    return _show_guests(
        options,
        "guests-import",
        found,
        guests_exit_code(found, done=done, failed=("refused",), detailed=options.detailed_exitcode),
        from_driver=nodes is None,
    )


def forget_guest(conf: cfg.ConfigOpts, options: Options) -> int:
    """End the record of a guest that is gone for good. Return the exit code.

    :raises AgentError: there is no such record, the hypervisor shows the guest or may, or the guest
        is on another host.
    """
    instance = _instance(options.arguments["instance"])
    document = from_daemon(conf, lambda client: _forget_by_daemon(client, instance))
    if document is None:
        from agent.cli.guests_here import forget_here

        document = forget_here(load(options), instance)
    return show_record(options, "instance", document, _forgotten_lines)


def _instance(wanted: str) -> ConsumerUuid:
    if not is_uuid(wanted):
        raise ConfigError(
            f"{printable(wanted)} is no uuid", "see those of instances: agent guests list"
        )
    return ConsumerUuid(normal_uuid(wanted))


def _guests_here(
    options: Options, *, imports: bool, dry_run: bool, again: Sequence[ConsumerUuid] = ()
) -> Sequence[Document]:
    from agent.cli.guests_here import guests_here

    # Loaded again, with the options of other services, which a driver may need.
    return guests_here(load(options), options, imports=imports, dry_run=dry_run, again=again)


def _forget_by_daemon(client: ApiClient, instance: ConsumerUuid) -> Document:
    # Audited first, so that a guest that has come back since is not forgotten.
    client.audit_report(client.request_audit(()), wait=PATIENCE)
    return client.forget_guest(instance)


def _forgotten_lines(instances: Sequence[Document], _look: Look) -> list[Text]:
    return [
        escape_text(
            f"instance {instance['uuid']} is forgotten: all that it had here is given back, in "
            "Placement with the next audit"
        )
        for instance in instances
    ]


def guests_exit_code(
    nodes: Sequence[Document], *, done: Sequence[str], failed: Sequence[str], detailed: bool = False
) -> int:
    """Return the exit code. ``done`` and ``failed``: the outcomes that count as a change and as a
    failure.
    """
    outcomes = {guest["outcome"] for node in nodes for guest in node["guests"]}
    well = [
        not node["errors"] and all(guest["outcome"] not in failed for guest in node["guests"])
        for node in nodes
    ]
    changed = any(outcome in outcomes for outcome in done)
    if not all(well):
        return PARTLY if changed or any(well) else FAILED
    return CHANGED if changed and detailed else DONE


def _import_by_daemon(
    client: ApiClient, options: Options, again: Sequence[ConsumerUuid]
) -> Sequence[Document]:
    if not options.dry_run:
        # Audited first, so that no guest is recorded that has gone since.
        client.audit_report(client.request_audit(options.nodes), wait=PATIENCE)
    return client.import_guests(options.nodes, dry_run=options.dry_run, again=again)


def _show_guests(
    options: Options,
    name: Literal["guests", "guests-import"],
    nodes: Sequence[Document],
    exit_code: int,
    *,
    from_driver: bool,
) -> int:
    dry_run = name == "guests-import" and options.dry_run
    source = "driver" if from_driver else "daemon"
    document = {"source": source, "dry_run": dry_run, "nodes": list(nodes)}
    text = render_guests(nodes, look_of(sys.stdout), from_driver=from_driver, dry_run=dry_run)
    return answer(options, f"compute-node-agent/{name}/1", document, text, exit_code)


RUN: Commands = {
    ("claims",): list_claims,
    ("migrations",): list_migrations,
    ("pci", "cleaned"): mark_devices_cleaned,
    ("claim", "create"): create_claim,
    ("claim", "abort"): abort_claim,
    ("claim", "show"): show_claim,
    ("migrate", "claim"): claim_move,
    ("migrate", "finish"): advance_move,
    ("migrate", "confirm"): advance_move,
    ("migrate", "revert"): advance_move,
    ("migrate", "abort"): advance_move,
    ("guests", "list"): list_guests,
    ("guests", "import"): import_guests,
    ("guests", "forget"): forget_guest,
}
