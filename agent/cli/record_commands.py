"""The table's commands on the tracker's records."""

from agent.cli.command import Argument, Command

CLAIM = "agent.cli.commands.records.claims"
GUESTS = "agent.cli.commands.records.guests"
OFFLINE = frozenset({"offline"})
# Uuids of no existing object, for examples.
A_UUID = "4f8f1f5e-3c54-4c3a-8f55-0b9a5c4b1d2e"
DOCUMENT = Argument(
    "file",
    (
        "the request as JSON, as the local API takes it; - for stdin. An id is made, and the only "
        "node is taken, if it has none"
    ),
    "FILE",
)
CLAIM_ID = (Argument("claim", "the claim's id", "CLAIM"),)
MOVE_ID = (Argument("move", "the move's id", "MOVE"),)
RECORD_COMMANDS = (
    Command(
        ("resources",),
        "show what the nodes have, what of it is promised, and what Placement would still give",
        "agent.cli.commands.records.resources:run",
        OFFLINE | {"nodes"},
        examples=("agent resources", "agent resources --node 'compute-1*' --format table"),
    ),
    Command(
        ("claims",),
        "show the claims that count",
        f"{CLAIM}:list_claims",
        OFFLINE,
        (Argument("--instance", "only those of this instance", "UUID"),),
        ("agent claims", f"agent claims --instance {A_UUID}"),
    ),
    Command(
        ("migrations",),
        "show the migrations that are not over",
        f"{CLAIM}:list_migrations",
        OFFLINE,
        (Argument("--all", "those that are over too", "", switch=True),),
        ("agent migrations", "agent migrations --all --format json"),
    ),
    Command(
        ("guests", "list"),
        "show the guests that the hypervisor shows, and what the records say of them",
        f"{GUESTS}:show",
        OFFLINE | {"nodes"},
        examples=("agent guests list",),
    ),
    Command(
        ("guests", "import"),
        "make records of the guests that no record knows",
        f"{GUESTS}:imported",
        frozenset({"dry_run", "nodes", "detailed_exitcode"}),
        examples=("agent guests import --dry-run", "agent guests import"),
    ),
    Command(
        ("guests", "forget"),
        "end the record of a guest that is gone for good, and give back what it had",
        f"{GUESTS}:forgotten",
        arguments=(Argument("instance", "the instance's uuid", "UUID"),),
        examples=(f"agent guests forget {A_UUID}",),
    ),
    Command(
        ("pci", "cleaned"),
        "a device for one-time use was cleaned, and guests can have it again",
        "agent.cli.commands.pci:mark_devices_cleaned",
        frozenset({"nodes"}),
        (Argument("address", "the device's address, 0000:81:00.0", "ADDRESS"),),
        ("agent pci cleaned 0000:81:00.0",),
    ),
    Command(
        ("claim", "create"),
        "promise a new guest its room",
        f"{CLAIM}:create_claim",
        arguments=(DOCUMENT,),
        examples=("agent claim create claim.json",),
    ),
    Command(
        ("claim", "abort"),
        "give a claim back",
        f"{CLAIM}:abort_claim",
        arguments=CLAIM_ID,
        examples=(f"agent claim abort {A_UUID}",),
    ),
    Command(
        ("claim", "show"),
        "show a claim, given back or not",
        f"{CLAIM}:show_claim",
        OFFLINE,
        CLAIM_ID,
        (f"agent claim show {A_UUID}",),
    ),
    Command(
        ("migrate", "claim"),
        "promise a guest that moves, or is resized, its room",
        f"{CLAIM}:claim_move",
        arguments=(DOCUMENT,),
        examples=("agent migrate claim move.json",),
    ),
    Command(
        ("migrate", "finish"),
        "the guest runs at the destination",
        f"{CLAIM}:advance_move",
        arguments=MOVE_ID,
        examples=(f"agent migrate finish {A_UUID}",),
    ),
    Command(
        ("migrate", "confirm"),
        "the guest stays; what it had before is given back",
        f"{CLAIM}:advance_move",
        arguments=MOVE_ID,
        examples=(f"agent migrate confirm {A_UUID}",),
    ),
    Command(
        ("migrate", "revert"),
        "the guest goes back; what it was to get is given back",
        f"{CLAIM}:advance_move",
        arguments=MOVE_ID,
        examples=(f"agent migrate revert {A_UUID}",),
    ),
    Command(
        ("migrate", "abort"),
        "the move does not take place",
        f"{CLAIM}:advance_move",
        arguments=MOVE_ID,
        examples=(f"agent migrate abort {A_UUID}",),
    ),
)
