"""The table of all commands. Each names the module that runs it, which is imported when the command
is used, so that a run loads nothing for other commands.
"""

from agent.cli.command import (
    COMMON_FORMATS,
    FOR_DRAWING,
    FOR_MONITORING,
    Argument,
    Command,
)

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
ANOTHER = "0d5e7c31-92a4-4b68-9f1d-6a3c8e20b574"
CONSUMER = Argument("consumer", "the consumer's uuid: of an instance or a migration", "CONSUMER")
AGGREGATE = (
    Argument("aggregate", "the aggregate's uuid", "AGGREGATE"),
    Argument("host", "the host's name, or its provider's uuid", "HOST"),
)
PROVIDER = Argument("provider", "the provider's name or uuid", "PROVIDER")
AMOUNTS = Argument("amounts", "the amount of each class", "CLASS=AMOUNT", many=True)
QUERY = Argument(
    "query",
    "the query, as Placement's API has it: resources=VCPU:2,MEMORY_MB:512 required=HW_CPU_X86_AVX",
    "KEY=VALUE",
    many=True,
)
EXPLAINED = (
    Argument("--flavor", "a flavor in JSON, as openstack flavor show -f json has it", "FILE"),
    Argument("--vcpus", "the flavor's CPUs", "COUNT"),
    Argument("--ram", "the flavor's memory", "MIB"),
    Argument("--disk", "the flavor's root disk", "GIB"),
    Argument(
        "--extra-spec", "an extra spec of the flavor; may be repeated", "KEY=VALUE", many=True
    ),
    Argument(
        "--image-property", "a property of the image; may be repeated", "KEY=VALUE", many=True
    ),
    Argument("--alias", "devices by an alias of [pci]; may be repeated", "NAME[:COUNT]", many=True),
    Argument("--volume-backed", "the root disk is a volume", "", switch=True),
    Argument("--claim", "a claim in JSON, as the local API takes it; - for stdin", "FILE"),
    Argument(
        "--guest", "a guest that is here: whether its host would still grant what it has", "UUID"
    ),
    Argument("--anywhere", "show also what Placement says of all nodes", "", switch=True),
    Argument("--suggest", "show what would make the request fit", "", switch=True),
    Argument(
        "query",
        "instead of a flavor or a claim: a query, as for agent candidates",
        "KEY=VALUE",
        many=True,
        optional=True,
    ),
)
# All of them take --dry-run, because a command that only reads sends no writes either.
DRY = frozenset({"dry_run", "detailed_exitcode"})

AUDIT = Command(
    (),
    "one audit",
    "audit",
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
DAEMON = Command((), "the daemon, in the foreground", "daemon")
COMMANDS = (
    Command(
        ("candidates",),
        "show the allocation candidates for a query",
        "placement_hosts",
        DRY,
        (QUERY,),
        ("agent candidates resources=VCPU:2,MEMORY_MB:512 required=HW_CPU_X86_AVX limit=5",),
    ),
    Command(
        ("explain",),
        "show whether and why a request fits each node, by Placement and by the host",
        "explain",
        frozenset({"nodes"}),
        EXPLAINED,
        (
            "agent explain --vcpus 4 --ram 8192 --extra-spec hw:cpu_policy=dedicated --suggest",
            "agent explain --flavor flavor.json --image-property hw_mem_page_size=large",
            "agent explain --anywhere resources=VCPU:2,MEMORY_MB:512 required=HW_CPU_X86_AVX",
            f"agent explain --guest {A_UUID}",
        ),
    ),
    Command(
        ("allocation", "show"),
        "show the allocation of a consumer",
        "allocation",
        DRY,
        (CONSUMER,),
        (f"agent allocation show {A_UUID}",),
    ),
    Command(
        ("allocation", "list"),
        "show every consumer that holds something of a node",
        "allocation",
        DRY,
        (Argument("root", "the node's name, or its root provider's uuid", "NODE"),),
        ("agent allocation list compute-1",),
    ),
    Command(
        ("allocation", "claim"),
        "allocate the first candidate for a query to a consumer",
        "allocation",
        DRY,
        (
            CONSUMER,
            QUERY,
            Argument("--project-id", "the project; by default that of what it holds", "ID"),
            Argument("--user-id", "the user; by default that of what it holds", "ID"),
            Argument(
                "--beside-source",
                (
                    "what it holds is the source of a move and stays; a provider on both sides "
                    "holds the maximum or the sum"
                ),
                "maximum|sum",
            ),
        ),
        (
            f"agent allocation claim --dry-run {A_UUID} resources=VCPU:2,MEMORY_MB:512 "
            "--project-id 7a1c5e0f --user-id 0d5e7c31",
        ),
    ),
    Command(
        ("allocation", "put"),
        "write the allocation of a consumer as a file has it",
        "allocation",
        DRY,
        (
            CONSUMER,
            Argument(
                "file", "the record, as agent allocation show --format json writes it", "FILE"
            ),
        ),
        (f"agent allocation put --dry-run {A_UUID} record.json",),
    ),
    Command(
        ("allocation", "add"),
        "add amounts of a provider to the allocation of a consumer",
        "allocation",
        DRY,
        (CONSUMER, PROVIDER, AMOUNTS),
        (f"agent allocation add --dry-run {A_UUID} compute-1 VCPU=2",),
    ),
    Command(
        ("allocation", "remove"),
        "remove amounts of a provider from the allocation of a consumer",
        "allocation",
        DRY,
        (CONSUMER, PROVIDER, AMOUNTS),
        (f"agent allocation remove --dry-run {A_UUID} compute-1 VCPU=2",),
    ),
    Command(
        ("allocation", "move"),
        "move the allocation of one consumer to another",
        "allocation",
        DRY,
        (
            Argument("source", "the consumer that has the allocation", "SOURCE"),
            Argument("target", "the consumer that gets the allocation", "TARGET"),
            Argument(
                "--overwrite",
                "even if the target has an allocation, which is lost",
                "",
                switch=True,
            ),
            Argument("--project-id", "the target's project, if it is not the source's", "ID"),
            Argument("--user-id", "the target's user, if it is not the source's", "ID"),
        ),
        (
            f"agent allocation move --dry-run {A_UUID} {ANOTHER}",
            f"agent allocation move {A_UUID} {ANOTHER}",
        ),
    ),
    Command(
        ("allocation", "delete"),
        "delete the allocation of a consumer",
        "allocation",
        DRY,
        (
            CONSUMER,
            Argument(
                "--force",
                "whatever the consumer's generation is, so that no other client notices",
                "",
                switch=True,
            ),
        ),
        (f"agent allocation delete --dry-run {A_UUID}", f"agent allocation delete {A_UUID}"),
    ),
    Command(
        ("allocation", "remove-tree"),
        "remove the providers of one node from a consumer's allocation",
        "allocation",
        DRY,
        (CONSUMER, Argument("root", "the node's name, or its root provider's uuid", "NODE")),
        (f"agent allocation remove-tree {A_UUID} compute-1",),
    ),
    Command(
        ("aggregate", "add-host"),
        "add a host to an aggregate",
        "placement_hosts",
        DRY,
        AGGREGATE,
        (f"agent aggregate add-host {A_UUID} compute-1",),
    ),
    Command(
        ("aggregate", "remove-host"),
        "remove a host from an aggregate",
        "placement_hosts",
        DRY,
        AGGREGATE,
        (f"agent aggregate remove-host {A_UUID} compute-1",),
    ),
    Command(
        ("usages",),
        "show how much a project has allocated",
        "placement_hosts",
        DRY,
        (
            Argument("project", "the project's id", "PROJECT"),
            Argument("--user-id", "show the usage of this user of the project too", "ID"),
        ),
        ("agent usages 7a1c5e0f9b3d4826a0c4e8f2b6d09135",),
    ),
    Command(
        ("pci", "unreport"),
        "remove the devices of a node from Placement",
        "placement_hosts",
        DRY,
        (Argument("root", "the node's name, or its root provider's uuid", "NODE"),),
        ("agent pci unreport --dry-run compute-1", "agent pci unreport compute-1"),
    ),
    Command(
        ("decommission",),
        "remove a node from Placement",
        "placement_hosts",
        DRY,
        (
            Argument("root", "the node's name, or its root provider's uuid", "NODE"),
            Argument(
                "--consumer",
                "a consumer on the node, whose allocation there is removed; may be repeated",
                "UUID",
                many=True,
            ),
            Argument(
                "--evacuated",
                "an evacuated consumer, whose allocation there is removed; may be repeated",
                "UUID",
                many=True,
            ),
            Argument(
                "--all-providers",
                "also delete providers that, by this store, the agent did not create",
                "",
                switch=True,
            ),
        ),
        ("agent decommission --dry-run compute-1", "agent decommission compute-1"),
    ),
    Command(
        ("resources",),
        "show the resources of the nodes: totals, what is used and free on record and in Placement",
        "tree",
        OFFLINE | {"nodes"},
        examples=("agent resources", "agent resources --node 'compute-1*'"),
        local=True,
    ),
    Command(
        ("claims",),
        "show the open claims",
        "claims",
        OFFLINE,
        (Argument("--instance", "only those of this instance", "UUID"),),
        ("agent claims", f"agent claims --instance {A_UUID}"),
        local=True,
    ),
    Command(
        ("migrations",),
        "show the migrations that have not ended",
        "claims",
        OFFLINE,
        (Argument("--all", "those that have ended too", "", switch=True),),
        ("agent migrations", "agent migrations --all --format json"),
        local=True,
    ),
    Command(
        ("guests", "list"),
        "show the guests of the hypervisor, and their records",
        "claims",
        OFFLINE | {"nodes"},
        examples=("agent guests list",),
        document="guests",
        local=True,
    ),
    Command(
        ("guests", "import"),
        "create records of the guests that have none",
        "claims",
        frozenset({"dry_run", "nodes", "detailed_exitcode"}),
        (
            Argument(
                "--again",
                "also this guest, which its record calls deleted or elsewhere; may be repeated",
                "UUID",
                many=True,
            ),
        ),
        examples=(
            "agent guests import --dry-run",
            "agent guests import",
            f"agent guests import --again {A_UUID}",
        ),
        local=True,
    ),
    Command(
        ("guests", "forget"),
        "end the record of a guest that is gone for good, and release its resources",
        "claims",
        arguments=(Argument("instance", "the instance's uuid", "UUID"),),
        examples=(f"agent guests forget {A_UUID}",),
        document="instance",
        local=True,
    ),
    Command(
        ("pci", "cleaned"),
        "report that a device for one-time use was cleaned, so that guests can have it again",
        "claims",
        frozenset({"nodes"}),
        (Argument("address", "the device's address, 0000:81:00.0", "ADDRESS"),),
        ("agent pci cleaned 0000:81:00.0",),
        document="device",
        local=True,
    ),
    Command(
        ("claim", "create"),
        "claim resources for a new guest",
        "claims",
        arguments=(DOCUMENT,),
        examples=("agent claim create claim.json",),
        document="claim",
        local=True,
    ),
    Command(
        ("claim", "abort"),
        "release a claim",
        "claims",
        arguments=CLAIM_ID,
        examples=(f"agent claim abort {A_UUID}",),
        document="claim",
        local=True,
    ),
    Command(
        ("claim", "show"),
        "show a claim, open or released",
        "claims",
        OFFLINE,
        CLAIM_ID,
        (f"agent claim show {A_UUID}",),
        document="claim",
        local=True,
    ),
    Command(
        ("migrate", "claim"),
        "claim resources for a guest that moves or is resized",
        "claims",
        arguments=(DOCUMENT,),
        examples=("agent migrate claim move.json",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "finish"),
        "finish a move: the guest runs at the destination",
        "claims",
        arguments=MOVE_ID,
        examples=(f"agent migrate finish {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "confirm"),
        "confirm a move: what the guest had before is released",
        "claims",
        arguments=MOVE_ID,
        examples=(f"agent migrate confirm {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "revert"),
        "revert a move: the guest goes back, and its new claim is released",
        "claims",
        arguments=MOVE_ID,
        examples=(f"agent migrate revert {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("migrate", "abort"),
        "abort a move, which does not take place",
        "claims",
        arguments=MOVE_ID,
        examples=(f"agent migrate abort {A_UUID}",),
        document="move",
        local=True,
    ),
    Command(
        ("status",),
        "show the state of the daemon and of its nodes",
        "status",
        frozenset({"offline", "detailed_exitcode"}),
        (
            Argument(
                "--watch",
                "show it again and again, every so many seconds; 2 unless given. Without a "
                "terminal, in lines",
                "SECONDS",
                implied="2",
            ),
        ),
        ("agent status", "agent status --detailed-exitcode", "agent status --watch 10"),
        local=True,
    ),
    Command(
        ("drift",),
        (
            "list the drift: what is not as it should be and what the agent does not correct by "
            "itself, with remedies"
        ),
        "status",
        frozenset({"offline", "nodes", "detailed_exitcode"}),
        examples=("agent drift", "agent drift --node compute-1 --format json"),
        local=True,
    ),
    Command(
        ("reload",),
        "have the daemon read its configuration again",
        "status",
        examples=("agent reload",),
        local=True,
    ),
    Command(
        ("tree",),
        "show the provider trees as last seen in Placement",
        "tree",
        frozenset({"offline", "nodes", "wide"}),
        formats=COMMON_FORMATS + FOR_DRAWING,
        examples=("agent tree", "agent tree --wide --node compute-1", "agent tree --format dot"),
        local=True,
    ),
    Command(
        ("report",),
        "write a page that shows the nodes, for a browser",
        "report",
        frozenset({"offline", "nodes"}),
        (Argument("file", "the file to write; a page that is there is replaced", "FILE.html"),),
        ("agent report nodes.html", "agent report --node 'compute-1*' nodes.html"),
        document="report-file",
        local=True,
    ),
    Command(
        ("schema",),
        "print the JSON schema of a document that a command writes with --format json",
        "schema",
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
        "config_check",
        lenient=True,
        examples=("agent config check", "agent config check --config-file new.conf"),
    ),
    Command(
        ("provider-config", "check"),
        "check the provider files, and show what they would change",
        "config_check",
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
        "driver",
        frozenset({"nodes"}),
        examples=("agent pci check",),
    ),
    Command(
        ("driver", "check"),
        "check whether a driver keeps the promises of the driver interface",
        "driver",
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
        "store",
        examples=("agent identity show",),
        document="identity",
    ),
    Command(
        ("identity", "rename"),
        "give the node's provider and its children the node's present name, in an audit",
        "audit",
        frozenset({"dry_run", "nodes", "detailed_exitcode", "wide"}),
        examples=("agent identity rename --dry-run", "agent identity rename"),
        document="report",
    ),
    Command(
        ("identity", "set"),
        "take over the provider of this node that Placement has under another uuid",
        "store",
        frozenset(),
        (Argument("uuid", "the uuid of the root provider in Placement", "UUID"),),
        ("agent identity set 6ba7b810-9dad-41d1-80b4-00c04fd430c8",),
    ),
    Command(
        ("takeover", "check"),
        "show what speaks against this agent in place of nova-compute, and what would change",
        "takeover_check",
        frozenset({"nodes", "detailed_exitcode"}),
        examples=(
            "agent takeover check --config-file /etc/nova/nova.conf",
            "agent takeover check --format json",
        ),
    ),
    Command(
        ("takeover", "undo"),
        "give this host back to nova-compute: remove from Placement what only this agent brought",
        "takeover_undo",
        frozenset({"dry_run", "nodes", "wide", "detailed_exitcode"}),
        (Argument("--yes", "carry it out; without it the plan is shown", "", switch=True),),
        ("agent takeover undo --dry-run", "agent takeover undo --yes"),
    ),
    Command(
        ("completion",),
        "print what makes a shell complete the command line of agent",
        "schema",
        frozenset(),
        (Argument("shell", "bash, zsh or fish", "SHELL", choices=("bash", "zsh", "fish")),),
        ("agent completion bash",),
        lenient=True,
    ),
    Command(
        ("db", "upgrade"),
        "create the store, or check that it has the schema of this version",
        "store",
        examples=("agent db upgrade",),
    ),
    Command(
        ("db", "backup"),
        "copy the store into a file, also while the daemon runs",
        "store",
        frozenset(),
        (Argument("file", "the file to write; it must not exist yet", "FILE"),),
        ('agent db backup "/var/backups/compute-node-agent-$(date +%F).sqlite"',),
    ),
    Command(
        ("db", "restore"),
        "replace the store by a backup, while no daemon runs",
        "store",
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
        "store",
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
