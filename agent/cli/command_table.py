"""The table of all commands. The function of each imports the command's module, so that a run loads
nothing for other commands.
"""

from oslo_config import cfg

from agent.cli.command import (
    COMMON_FORMATS,
    FOR_DRAWING,
    FOR_MONITORING,
    Argument,
    Command,
    Options,
)
from agent.cli.output import report_exit_code, write_report
from agent.cli.placement_commands import PLACEMENT_COMMANDS
from agent.cli.record_commands import RECORD_COMMANDS


def _audit_once(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.run import audit_once

    report = audit_once(conf, options)
    write_report(report, options)
    return report_exit_code(report, options)


def _run_daemon(conf: cfg.ConfigOpts, options: Options) -> int:
    if conf.api.socket:
        # First, because what is imported then takes the memory that the parser frees: 1 MiB less.
        from agent.api.description import read

        read()
    from agent.cli.run import run_daemon

    return run_daemon(conf, options)


def _show_status(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.status import show_status

    return show_status(conf, options)


def _show_drift(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.status import show_drift

    return show_drift(conf, options)


def _reload_configuration(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.status import reload_configuration

    return reload_configuration(conf, options)


def _show_tree(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.tree import show_tree

    return show_tree(conf, options)


def _watch_nodes(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.watch import watch_nodes

    return watch_nodes(conf, options)


def _write_report_page(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.report import write_report_page

    return write_report_page(conf, options)


def _show_schema(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.schema import show_schema

    return show_schema(conf, options)


def _check_config(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.config_check import check_config

    return check_config(conf, options)


def _check_provider_config(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.provider_config_check import check_provider_config

    return check_provider_config(conf, options)


def _check_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.pci import check_pci

    return check_pci(conf, options)


def _check_driver(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.driver import check_driver

    return check_driver(conf, options)


def _show_identity(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.identity import show_identity

    return show_identity(conf, options)


def _set_identity(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.identity import set_identity

    return set_identity(conf, options)


def _set_up_host(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.setup.setup import set_up_host

    return set_up_host(conf, options)


def _print_completion(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.completion.completion import print_completion

    return print_completion(conf, options)


def _upgrade_store(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.store import upgrade_store

    return upgrade_store(conf, options)


def _back_up_store(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.store import back_up_store

    return back_up_store(conf, options)


def _restore_store(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.store import restore_store

    return restore_store(conf, options)


def _set_store_aside(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.store import set_store_aside

    return set_store_aside(conf, options)


def _check_takeover(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.takeover.check import check_takeover

    return check_takeover(conf, options)


def _undo_takeover(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.takeover.undo import undo_takeover

    return undo_takeover(conf, options)


AUDIT = Command(
    (),
    "one audit",
    _audit_once,
    frozenset(
        {
            "observe",
            "dry_run",
            "adopt",
            "reread",
            "remove_deleted",
            "with_usages",
            "report",
            "detailed_exitcode",
            "nodes",
            "wide",
        }
    ),
    formats=COMMON_FORMATS + FOR_MONITORING,
    document="report",
)
DAEMON = Command((), "the daemon, in the foreground", _run_daemon)
COMMANDS = (
    *PLACEMENT_COMMANDS,
    *RECORD_COMMANDS,
    Command(
        ("status",),
        "show the state of the daemon and of its nodes",
        _show_status,
        frozenset({"offline", "detailed_exitcode"}),
        examples=("agent status", "agent status --detailed-exitcode"),
        local=True,
    ),
    Command(
        ("drift",),
        (
            "list the drift: what is not as it should be and what the agent does not correct by "
            "itself, with remedies"
        ),
        _show_drift,
        frozenset({"nodes", "detailed_exitcode"}),
        examples=("agent drift", "agent drift --node compute-1 --format json"),
        local=True,
    ),
    Command(
        ("reload",),
        "have the daemon read its configuration again",
        _reload_configuration,
        examples=("agent reload",),
        local=True,
    ),
    Command(
        ("tree",),
        "show the provider trees as last seen in Placement",
        _show_tree,
        frozenset({"offline", "nodes", "wide"}),
        formats=COMMON_FORMATS + FOR_DRAWING,
        examples=("agent tree", "agent tree --wide --node compute-1", "agent tree --format dot"),
        local=True,
    ),
    Command(
        ("watch",),
        "show the daemon and its nodes, refreshed until q is pressed; lines without a terminal",
        _watch_nodes,
        frozenset({"nodes"}),
        (Argument("--interval", "seconds from one look to the next; 2 unless given", "SECONDS"),),
        ("agent watch", "agent watch --interval 10 --node 'compute-1*'"),
        formats=(),
        no_document="it shows the nodes until it is ended",
        local=True,
    ),
    Command(
        ("report",),
        "write a page that shows the nodes, for a browser",
        _write_report_page,
        frozenset({"offline", "nodes"}),
        (Argument("file", "the file to write; a page that is there is replaced", "FILE.html"),),
        ("agent report nodes.html", "agent report --node 'compute-1*' nodes.html"),
        document="report-file",
        local=True,
    ),
    Command(
        ("schema",),
        "print the JSON schema of a document that a command writes with --format json",
        _show_schema,
        arguments=(
            Argument("name", "the document; all are listed without it", "NAME", optional=True),
        ),
        lenient=True,
        examples=("agent schema", "agent schema report"),
        local=True,
    ),
    Command(
        ("config", "check"),
        "check the configuration and show all its errors",
        _check_config,
        lenient=True,
        examples=("agent config check", "agent config check --config-file new.conf"),
    ),
    Command(
        ("provider-config", "check"),
        "check the provider files, and show what they would change",
        _check_provider_config,
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
        _check_pci,
        frozenset({"nodes"}),
        examples=("agent pci check",),
    ),
    Command(
        ("driver", "check"),
        "check whether a driver keeps the promises of the driver interface",
        _check_driver,
        frozenset({"nodes", "wide"}),
        (
            Argument("driver", "the driver's name, as [DEFAULT] compute_driver has it", "NAME"),
            Argument("--all", "check every node, not a sample of 20", "", switch=True),
        ),
        (
            "agent driver check fake.numa",
            "agent driver check mine --config-file mine.conf --compute-facts_deadline 5",
        ),
    ),
    Command(
        ("identity", "show"),
        "show the uuid by which Placement knows this node, and where it comes from",
        _show_identity,
        examples=("agent identity show",),
        document="identity",
    ),
    Command(
        ("identity", "rename"),
        "give the node's provider and its children the node's present name, in an audit",
        _audit_once,
        frozenset({"dry_run", "nodes", "detailed_exitcode", "wide"}),
        examples=("agent identity rename --dry-run", "agent identity rename"),
        document="report",
    ),
    Command(
        ("identity", "set"),
        "take over the provider of this node that Placement has under another uuid",
        _set_identity,
        frozenset(),
        (Argument("uuid", "the uuid of the root provider in Placement", "UUID"),),
        ("agent identity set 6ba7b810-9dad-41d1-80b4-00c04fd430c8",),
    ),
    Command(
        ("takeover", "check"),
        "show what speaks against this agent in place of nova-compute, and what would change",
        _check_takeover,
        frozenset({"nodes", "detailed_exitcode"}),
        examples=(
            "agent takeover check --config-file /etc/nova/nova.conf",
            "agent takeover check --format json",
        ),
    ),
    Command(
        ("takeover", "undo"),
        "give this host back to nova-compute: remove from Placement what only this agent brought",
        _undo_takeover,
        frozenset({"dry_run", "nodes", "wide", "detailed_exitcode"}),
        (Argument("--yes", "carry it out; without it the plan is shown", "", switch=True),),
        ("agent takeover undo --dry-run", "agent takeover undo --yes"),
    ),
    Command(
        ("setup",),
        "put the files of the service in place on this host, or take them away again",
        _set_up_host,
        frozenset({"dry_run"}),
        (
            Argument("--root", "the folder that stands for / of the host; default: /", "DIR"),
            Argument(
                "--drop-in",
                "also this drop-in: libvirt (the service is in the group libvirt), nova (it reads "
                "/etc/nova/nova.conf) or nova-compute (nova-compute reports as the agent does); "
                "may be repeated",
                "NAME",
                many=True,
                choices=("fleet", "libvirt", "nova", "nova-compute"),
            ),
            Argument(
                "--command",
                "the path of agent on the host; default: the one given before, or that of this one",
                "PATH",
            ),
            Argument(
                "--remove",
                "take away what it wrote and nobody changed; told is what stays",
                "",
                switch=True,
            ),
            Argument("--yes", "do it; without it the files are shown", "", switch=True),
        ),
        (
            "agent setup",
            "agent setup --drop-in libvirt --yes",
            "agent setup --remove --yes",
        ),
        lenient=True,
    ),
    Command(
        ("completion",),
        "print what makes a shell complete the command line of agent",
        _print_completion,
        frozenset(),
        (Argument("shell", "bash, zsh or fish", "SHELL", choices=("bash", "zsh", "fish")),),
        ("agent completion bash",),
        lenient=True,
    ),
    Command(
        ("db", "upgrade"),
        "create the store, or check that it has the schema of this version",
        _upgrade_store,
        examples=("agent db upgrade",),
    ),
    Command(
        ("db", "backup"),
        "copy the store into a file, also while the daemon runs",
        _back_up_store,
        frozenset(),
        (Argument("file", "the file to write; it must not exist yet", "FILE"),),
        ('agent db backup "/var/backups/compute-node-agent-$(date +%F).sqlite"',),
    ),
    Command(
        ("db", "restore"),
        "replace the store by a backup, while no daemon runs",
        _restore_store,
        frozenset({"dry_run"}),
        (Argument("file", "a file that db backup wrote", "FILE"),),
        (
            "agent db restore --dry-run /var/backups/compute-node-agent-2026-11-22.sqlite",
            "agent db restore /var/backups/compute-node-agent-2026-11-22.sqlite",
        ),
    ),
    Command(
        ("db", "set-aside"),
        "move the database away, to begin with an empty one, while no daemon runs",
        _set_store_aside,
        examples=("agent db set-aside",),
    ),
)
# The help of the first words of commands with two words.
TOPICS = {
    "allocation": "what consumers hold in Placement",
    "aggregate": "hosts in Placement's aggregates",
    "claim": "resources that are promised to guests",
    "migrate": "moves of guests",
    "guests": "guests that the hypervisor shows",
    "config": "the configuration",
    "provider-config": "the provider files",
    "pci": "devices for guests",
    "driver": "what reports the host's resources",
    "identity": "the node's persisted identity",
    "takeover": "a host of nova-compute",
    "db": "the store",
}


def find(words: tuple[str, ...], once: bool) -> Command:
    """Return the command for words that the parser accepts."""
    if not words:
        return AUDIT if once else DAEMON
    return next(command for command in COMMANDS if command.words == words)
