"""The table's commands on the tracker's records."""

from oslo_config import cfg

from agent.cli.command import Argument, Command, Options


def _show_resources(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.resources import show_resources

    return show_resources(conf, options)


def _list_claims(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import list_claims

    return list_claims(conf, options)


def _list_migrations(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import list_migrations

    return list_migrations(conf, options)


def _list_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.guests import list_guests

    return list_guests(conf, options)


def _import_guests(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.guests import import_guests

    return import_guests(conf, options)


def _forget_guest(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.guests import forget_guest

    return forget_guest(conf, options)


def _mark_devices_cleaned(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.devices import mark_devices_cleaned

    return mark_devices_cleaned(conf, options)


def _create_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import create_claim

    return create_claim(conf, options)


def _abort_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import abort_claim

    return abort_claim(conf, options)


def _show_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import show_claim

    return show_claim(conf, options)


def _claim_move(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import claim_move

    return claim_move(conf, options)


def _advance_move(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.records.claims import advance_move

    return advance_move(conf, options)


OFFLINE = frozenset({"offline"})
# Uuids of no existing object, for examples.
A_UUID = "4f8f1f5e-3c54-4c3a-8f55-0b9a5c4b1d2e"
DOCUMENT = Argument(
    "file",
    (
        "the request in JSON, as for the local API; - for stdin. A missing id is generated; a "
        "missing node is the agent's only one"
    ),
    "FILE",
)
CLAIM_ID = (Argument("claim", "the claim's id", "CLAIM"),)
MOVE_ID = (Argument("move", "the move's id", "MOVE"),)
RECORD_COMMANDS = (
    Command(
        ("resources",),
        "show the resources of the nodes: total, promised to guests, and free in Placement",
        _show_resources,
        OFFLINE | {"nodes"},
        examples=("agent resources", "agent resources --node 'compute-1*' --format table"),
        local=True,
    ),
    Command(
        ("claims",),
        "show the open claims",
        _list_claims,
        OFFLINE,
        (Argument("--instance", "only those of this instance", "UUID"),),
        ("agent claims", f"agent claims --instance {A_UUID}"),
        local=True,
    ),
    Command(
        ("migrations",),
        "show the migrations that have not ended",
        _list_migrations,
        OFFLINE,
        (Argument("--all", "those that have ended too", "", switch=True),),
        ("agent migrations", "agent migrations --all --format json"),
        local=True,
    ),
    Command(
        ("guests", "list"),
        "show the guests of the hypervisor, and their records",
        _list_guests,
        OFFLINE | {"nodes"},
        examples=("agent guests list",),
        document="guests",
        local=True,
    ),
    Command(
        ("guests", "import"),
        "create records of the guests that have none",
        _import_guests,
        frozenset({"dry_run", "nodes", "detailed_exitcode"}),
        examples=("agent guests import --dry-run", "agent guests import"),
        local=True,
    ),
    Command(
        ("guests", "forget"),
        "end the record of a guest that is gone for good, and release its resources",
        _forget_guest,
        arguments=(Argument("instance", "the instance's uuid", "UUID"),),
        examples=(f"agent guests forget {A_UUID}",),
        document="instance",
        local=True,
    ),
    Command(
        ("pci", "cleaned"),
        "report that a device for one-time use was cleaned, so that guests can have it again",
        _mark_devices_cleaned,
        frozenset({"nodes"}),
        (Argument("address", "the device's address, 0000:81:00.0", "ADDRESS"),),
        ("agent pci cleaned 0000:81:00.0",),
        document="device",
        local=True,
    ),
    Command(
        ("claim", "create"),
        "claim resources for a new guest",
        _create_claim,
        arguments=(DOCUMENT,),
        examples=("agent claim create claim.json",),
        document="claim",
        local=True,
    ),
    Command(
        ("claim", "abort"),
        "release a claim",
        _abort_claim,
        arguments=CLAIM_ID,
        examples=(f"agent claim abort {A_UUID}",),
        document="claim",
        local=True,
    ),
    Command(
        ("claim", "show"),
        "show a claim, open or released",
        _show_claim,
        OFFLINE,
        CLAIM_ID,
        (f"agent claim show {A_UUID}",),
        document="claim",
        local=True,
    ),
    Command(
        ("migrate", "claim"),
        "claim resources for a guest that moves or is resized",
        _claim_move,
        arguments=(DOCUMENT,),
        examples=("agent migrate claim move.json",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "finish"),
        "finish a move: the guest runs at the destination",
        _advance_move,
        arguments=MOVE_ID,
        examples=(f"agent migrate finish {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "confirm"),
        "confirm a move: what the guest had before is released",
        _advance_move,
        arguments=MOVE_ID,
        examples=(f"agent migrate confirm {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "revert"),
        "revert a move: the guest goes back, and its new claim is released",
        _advance_move,
        arguments=MOVE_ID,
        examples=(f"agent migrate revert {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "abort"),
        "abort a move, which does not take place",
        _advance_move,
        arguments=MOVE_ID,
        examples=(f"agent migrate abort {A_UUID}",),
        document="move",
        local=True,
    ),
)
