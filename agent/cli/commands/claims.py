"""``agent claim``, ``claims``, ``migrate``, ``migrations`` and ``pci cleaned``: claims, moves,
migrations, and the report that a device was cleaned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from oslo_config import cfg

from agent.api.client import MoveStep
from agent.cli.command import Commands, Options
from agent.cli.daemon_client import (
    ask_daemon_or_store,
    client,
    read_list,
    show_list,
    show_record,
)
from agent.cli.request_file import request_in
from agent.errors import ConfigError
from agent.model.claim import ENDED
from agent.model.devices import PciAddress
from agent.model.names import printable
from agent.render.look import Look, Text
from agent.render.records import claim_lines, migration_lines, move_lines

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
    found = read_list(conf, options, "claims", {"instance": instance} if instance else {})
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
    found = read_list(conf, options, "migrations", {})
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
}
