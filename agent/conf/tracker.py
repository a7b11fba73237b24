"""[tracker]: the records of claims."""

from oslo_config import cfg

GROUP = "tracker"

OPTIONS = [
    cfg.IntOpt(
        "node_lease",
        default=300,
        min=30,
        help=(
            "Seconds for which no other host may take a node over after its agent last renewed "
            "the lease on it. Every audit renews the lease, so this time has to be longer than the "
            "time between two audits; a clean stop ends the lease."
        ),
    ),
    cfg.IntOpt(
        "stranded_after",
        default=3600,
        min=0,
        help=(
            "Seconds after which a move that has not arrived is reported as stranded-claim, with "
            "the command that ends it, unless its progress or a state of its instance was reported "
            "meanwhile; likewise a claim whose guest has not appeared. The claim stays open until "
            "somebody ends it: age alone releases nothing."
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
