"""[tracker]: how the records of claims are kept."""

from oslo_config import cfg

GROUP = "tracker"

OPTIONS = [
    cfg.IntOpt(
        "node_lease", default=300, min=30,
        help=(
            "Seconds for which no other host may take a node over after its agent was last heard of. Every audit renews it, so it has to be "
            "longer than the time between two; a clean stop ends it."
        ),
    ),
    cfg.IntOpt(
        "stranded_after", default=3600, min=0,
        help=(
            "Seconds after which the claim of a move counts as stranded, if its instance is not being moved any more. The audit that finds it "
            "tells of it, the next one releases it."
        ),
    ),
    cfg.IntOpt(
        "keep_ended", default=90, min=1,
        help=(
            "Days for which records of released claims, ended migrations and deleted instances are kept. Until then they prove whose leaked "
            "allocations were."
        ),
    ),
    cfg.BoolOpt("count_orphans", default=False, help="Whether memory and CPUs of guests that no record knows count as used."),
]  # fmt: skip
