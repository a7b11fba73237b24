"""The table of all commands. The module of a command is imported only when the command runs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from agent.cli.command import Argument, Command
from agent.cli.placement_commands import PLACEMENT_COMMANDS
from agent.cli.record_commands import RECORD_COMMANDS

AUDIT = Command(
    (),
    "one audit",
    "agent.cli.once:run",
    frozenset({"dry_run", "adopt", "reread", "with_usages", "detailed_exitcode", "nodes", "wide"}),
)
DAEMON = Command((), "the daemon, in the foreground", "agent.service.daemon:run")
COMMANDS = (
    *PLACEMENT_COMMANDS,
    *RECORD_COMMANDS,
    Command(
        ("status",),
        "show how the daemon and its nodes are",
        "agent.cli.commands.status:show_status",
        frozenset({"offline", "detailed_exitcode"}),
        examples=("agent status", "agent status --detailed-exitcode"),
    ),
    Command(
        ("drift",),
        (
            "list what is not as it should be and what the agent will not touch by itself, with "
            "what to do"
        ),
        "agent.cli.commands.status:show_drift",
        frozenset({"nodes", "detailed_exitcode"}),
        examples=("agent drift", "agent drift --node compute-1 --format json"),
    ),
    Command(
        ("reload",),
        "have the daemon read its configuration again",
        "agent.cli.commands.status:reload_configuration",
        examples=("agent reload",),
    ),
    Command(
        ("tree",),
        "show the provider trees as last seen in Placement",
        "agent.cli.commands.tree:run",
        frozenset({"offline", "nodes", "wide"}),
        examples=("agent tree", "agent tree --wide --node compute-1", "agent tree --format table"),
    ),
    Command(
        ("config", "check"),
        "check the configuration and name everything wrong with it",
        "agent.cli.commands.config_check:run",
        lenient=True,
        examples=("agent config check", "agent config check --config-file new.conf"),
    ),
    Command(
        ("provider-config", "check"),
        "check the files that add to providers, and show what they would change",
        "agent.cli.commands.provider_config_check:run",
        frozenset({"detailed_exitcode"}),
        (
            Argument(
                "folder",
                "the files' folder, if not that of [compute] provider_config_location",
                "DIR",
                optional=True,
            ),
        ),
        ("agent provider-config check", "agent provider-config check /etc/nova/provider_config"),
    ),
    Command(
        ("pci", "check"),
        "show which device each object of [pci] device_spec offers",
        "agent.cli.commands.pci:check_pci",
        frozenset({"nodes"}),
        examples=("agent pci check",),
    ),
    Command(
        ("identity", "show"),
        "show the uuid by which Placement knows this node",
        "agent.cli.commands.identity_show:run",
        examples=("agent identity show",),
    ),
    Command(
        ("db", "upgrade"),
        "bring the store's schema up to date",
        "agent.cli.commands.db:upgrade_store",
        examples=("agent db upgrade",),
    ),
    Command(
        ("db", "backup"),
        "copy the store into a file, also while the daemon runs",
        "agent.cli.commands.db:back_up_store",
        frozenset(),
        (Argument("file", "the file to make; there must be none of that name", "FILE"),),
        ('agent db backup "/var/backups/compute-node-agent-$(date +%F).sqlite"',),
    ),
    Command(
        ("db", "restore"),
        "put a backup in the store's place, while no daemon runs",
        "agent.cli.commands.db:restore_store",
        frozenset({"dry_run"}),
        (Argument("file", "a file that db backup has made", "FILE"),),
        (
            "agent db restore --dry-run /var/backups/compute-node-agent-2026-11-22.sqlite",
            "agent db restore /var/backups/compute-node-agent-2026-11-22.sqlite",
        ),
    ),
)
# The help of the first words of commands with two words.
TOPICS = {
    "allocation": "what consumers hold in Placement",
    "aggregate": "hosts in Placement's aggregates",
    "claim": "room that is promised to guests",
    "migrate": "moves of guests",
    "guests": "guests that the hypervisor shows",
    "config": "the configuration",
    "provider-config": "the files that add to providers",
    "pci": "devices for guests",
    "identity": "the node's persisted identity",
    "db": "the store",
}


def find(words: tuple[str, ...], once: bool) -> Command:
    """Return the command for words that the parser accepts."""
    if not words:
        return AUDIT if once else DAEMON
    return next(command for command in COMMANDS if command.words == words)


def function(command: Command) -> Callable[..., Any]:
    """Return the function of a command. Its import may be slow."""
    module, _, name = command.target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
