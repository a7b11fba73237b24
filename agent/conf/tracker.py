"""[tracker]: the records of claims."""

from oslo_config import cfg

GROUP = "tracker"

OPTIONS = [
    cfg.IntOpt(
        "node_lease",
        default=300,
        min=30,
        help=(
            "Seconds for which no other host may take a node over after its agent was last heard "
            "of. Every audit renews it, so it has to be "
            "longer than the time between two; a clean stop ends it."
        ),
    ),
    cfg.IntOpt(
        "stranded_after",
        default=3600,
        min=0,
        help=(
            "Seconds after which a move that has not arrived, and of which nobody has told "
            "anything meanwhile, neither progress nor a state of its instance, is told as "
            "stranded-claim, with the command that ends it; and so is a claim whose guest has not "
            "come. The room is kept until then: age alone frees nothing."
        ),
    ),
    cfg.IntOpt(
        "keep_ended",
        default=90,
        min=1,
        help=(
            "Days for which records are kept of released claims, of migrations that ended or "
            "failed, of instances that are deleted or whose build failed, and of deleted nodes. "
            "Until then they prove whose leaked allocations were."
        ),
    ),
    cfg.BoolOpt(
        "count_orphans",
        default=False,
        help="Whether memory and CPUs of guests that no record knows count as used.",
    ),
]
