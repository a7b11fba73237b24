"""The commands about what is promised to guests."""

from agent.cli.command import Argument, Command

LISTS = "agent.cli.commands.records.lists"
CLAIM = "agent.cli.commands.records.claim"
GUESTS = "agent.cli.commands.records.guests"
MIGRATE = "agent.cli.commands.records.migrate"
OFFLINE = frozenset({"offline"})
DOCUMENT = Argument("file", "the request as JSON, as the local API takes it; - for stdin. An id is made, and the only node is taken, if it has none", "FILE")
CLAIM_ID = (Argument("claim", "the claim's id", "CLAIM"),)
MOVE_ID = (Argument("move", "the move's id", "MOVE"),)
RECORD_COMMANDS = (
    Command(("resources",), "show what the nodes have, and what of it is promised", "agent.cli.commands.records.resources:run", OFFLINE | {"nodes"}),
    Command(
        ("claims",), "show the claims that count", f"{LISTS}:claims", OFFLINE, (Argument("--instance", "only those of this instance", "UUID"),),
    ),
    Command(
        ("migrations",), "show the migrations that are not over", f"{LISTS}:migrations", OFFLINE,
        (Argument("--all", "those that are over too", "", switch=True),),
    ),
    Command(("guests", "list"), "show the guests that the hypervisor shows, and what the records say of them", f"{GUESTS}:show", OFFLINE | {"nodes"}),
    Command(
        ("guests", "import"), "make records of the guests that no record knows", f"{GUESTS}:imported",
        frozenset({"dry_run", "nodes", "detailed_exitcode"}),
    ),
    Command(("claim", "create"), "promise a new guest its room", f"{CLAIM}:create", arguments=(DOCUMENT,)),
    Command(("claim", "abort"), "give a claim back", f"{CLAIM}:abort", arguments=CLAIM_ID),
    Command(("claim", "show"), "show a claim, given back or not", f"{CLAIM}:show", OFFLINE, CLAIM_ID),
    Command(("migrate", "claim"), "promise a guest that moves, or is resized, its room", f"{MIGRATE}:claim", arguments=(DOCUMENT,)),
    Command(("migrate", "finish"), "the guest runs at the destination", f"{MIGRATE}:step", arguments=MOVE_ID),
    Command(("migrate", "confirm"), "the guest stays; what it had before is given back", f"{MIGRATE}:step", arguments=MOVE_ID),
    Command(("migrate", "revert"), "the guest goes back; what it was to get is given back", f"{MIGRATE}:step", arguments=MOVE_ID),
    Command(("migrate", "abort"), "the move does not take place", f"{MIGRATE}:step", arguments=MOVE_ID),
)  # fmt: skip
