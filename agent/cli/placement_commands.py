"""The table's commands for work on Placement itself."""

from oslo_config import cfg

from agent.cli.command import Argument, Command, Options
from agent.cli.record_commands import A_UUID


def _show_candidates(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.candidates import show_candidates

    return show_candidates(conf, options)


def _explain_request(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.explain import explain_request

    return explain_request(conf, options)


def _show_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import show_allocation

    return show_allocation(conf, options)


def _list_allocations(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import list_allocations

    return list_allocations(conf, options)


def _claim_candidate(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import claim_candidate

    return claim_candidate(conf, options)


def _put_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import put_allocation

    return put_allocation(conf, options)


def _add_to_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import add_to_allocation

    return add_to_allocation(conf, options)


def _remove_from_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import remove_from_allocation

    return remove_from_allocation(conf, options)


def _move_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import move_allocation

    return move_allocation(conf, options)


def _delete_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import delete_allocation

    return delete_allocation(conf, options)


def _remove_tree_from_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.allocation import remove_tree_from_allocation

    return remove_tree_from_allocation(conf, options)


def _add_host_to_aggregate(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.host import add_host_to_aggregate

    return add_host_to_aggregate(conf, options)


def _remove_host_from_aggregate(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.host import remove_host_from_aggregate

    return remove_host_from_aggregate(conf, options)


def _show_usages(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.candidates import show_usages

    return show_usages(conf, options)


def _unreport_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.host import unreport_pci

    return unreport_pci(conf, options)


def _decommission_node(conf: cfg.ConfigOpts, options: Options) -> int:
    from agent.cli.commands.placement.host import decommission_node

    return decommission_node(conf, options)


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
PLACEMENT_COMMANDS = (
    Command(
        ("candidates",),
        "show the allocation candidates for a query",
        _show_candidates,
        DRY,
        (QUERY,),
        ("agent candidates resources=VCPU:2,MEMORY_MB:512 required=HW_CPU_X86_AVX limit=5",),
    ),
    Command(
        ("explain",),
        "show whether and why a request fits each node, by Placement and by the host",
        _explain_request,
        frozenset({"nodes"}),
        EXPLAINED,
        (
            "agent explain --vcpus 4 --ram 8192 --extra-spec hw:cpu_policy=dedicated --suggest",
            "agent explain --flavor flavor.json --image-property hw_mem_page_size=large",
            "agent explain --anywhere resources=VCPU:2,MEMORY_MB:512 required=HW_CPU_X86_AVX",
        ),
    ),
    Command(
        ("allocation", "show"),
        "show the allocation of a consumer",
        _show_allocation,
        DRY,
        (CONSUMER,),
        (f"agent allocation show {A_UUID}",),
    ),
    Command(
        ("allocation", "list"),
        "show every consumer that holds something of a node",
        _list_allocations,
        DRY,
        (Argument("root", "the node's name, or its root provider's uuid", "NODE"),),
        ("agent allocation list compute-1",),
    ),
    Command(
        ("allocation", "claim"),
        "allocate the first candidate for a query to a consumer",
        _claim_candidate,
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
        _put_allocation,
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
        _add_to_allocation,
        DRY,
        (CONSUMER, PROVIDER, AMOUNTS),
        (f"agent allocation add --dry-run {A_UUID} compute-1 VCPU=2",),
    ),
    Command(
        ("allocation", "remove"),
        "remove amounts of a provider from the allocation of a consumer",
        _remove_from_allocation,
        DRY,
        (CONSUMER, PROVIDER, AMOUNTS),
        (f"agent allocation remove --dry-run {A_UUID} compute-1 VCPU=2",),
    ),
    Command(
        ("allocation", "move"),
        "move the allocation of one consumer to another",
        _move_allocation,
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
        _delete_allocation,
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
        _remove_tree_from_allocation,
        DRY,
        (CONSUMER, Argument("root", "the node's name, or its root provider's uuid", "NODE")),
        (f"agent allocation remove-tree {A_UUID} compute-1",),
    ),
    Command(
        ("aggregate", "add-host"),
        "add a host to an aggregate",
        _add_host_to_aggregate,
        DRY,
        AGGREGATE,
        (f"agent aggregate add-host {A_UUID} compute-1",),
    ),
    Command(
        ("aggregate", "remove-host"),
        "remove a host from an aggregate",
        _remove_host_from_aggregate,
        DRY,
        AGGREGATE,
        (f"agent aggregate remove-host {A_UUID} compute-1",),
    ),
    Command(
        ("usages",),
        "show how much a project has allocated",
        _show_usages,
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
        _unreport_pci,
        DRY,
        (Argument("root", "the node's name, or its root provider's uuid", "NODE"),),
        ("agent pci unreport --dry-run compute-1", "agent pci unreport compute-1"),
    ),
    Command(
        ("decommission",),
        "remove a node from Placement",
        _decommission_node,
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
)
