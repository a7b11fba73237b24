"""The memo of an audit: what followed from the last observation of a node follows again as long as
all that it followed from is as it was. Pure functions.

Nothing is kept that depends on the time, or on what is asked anew in each pass.
"""

from dataclasses import replace

from agent.audit.observation import (
    DriverTree,
    HeldHere,
    Holders,
    Holdings,
    Judged,
    LastOutcome,
    Observation,
    PlanOutcome,
    Shaped,
)


def last_outcome(seen: Observation, outcome: PlanOutcome) -> LastOutcome | None:
    """Return what is kept of an outcome; None if the same observation could lead to another shape,
    or if there is something to do.
    """
    last, shaped = seen.last, outcome.shaped
    assert shaped is not None
    judged = outcome.judged if outcome.judged.quiet else None
    if last is not None and last.shaped is shaped and last.judged is judged:
        return last
    # What is held until it is free depends on usages, and a question about the consumers of
    # providers that shrink has to be asked each time.
    asks = seen.usages or any(isinstance(need, Holders) for need in seen.answers)
    plan = shaped.plan
    if asks or shaped.move or plan.operations or plan.limited or plan.drift:
        return None
    return LastOutcome(replace(seen, last=None), shaped, judged)


def shape_again(seen: Observation) -> Shaped | None:
    """Return the last shape if everything that it follows from is as it was; what a driver in
    nova's style makes of the tree has to be known.
    """
    if seen.last is None or seen.usages or seen.first or seen.reshapes or seen.options.adopt:
        return None
    last = seen.last.seen
    same = (
        last.view.above == seen.view.above
        and last.view.tree.same_contents(seen.view.tree)
        and last.journal == seen.journal
        and last.capabilities == seen.capabilities
        # A trait that the server did not know may have to be looked up again.
        and seen.capabilities.left_out_traits(seen.now) == seen.capabilities.unknown_traits
        and last.uses == seen.uses
        and last.places == seen.places
        and last.policy == seen.policy
        and last.compute_capabilities == seen.compute_capabilities
        # Neither shape nor plan depends on their time.
        and last.facts.same_but_for_time(seen.facts)
    )
    return seen.last.shaped if same and _same_driver_tree(seen, last) else None


def _same_driver_tree(seen: Observation, last: Observation) -> bool:
    """Return whether the driver makes the same tree; other drivers than those in nova's style make
    equal trees of equal facts.
    """
    if seen.driver_shapes != "all":
        return True
    tree = DriverTree(moves=False)
    made, before = seen.answers.get(tree), last.answers.get(tree)
    if not (isinstance(made, tuple) and isinstance(before, tuple)):
        return False
    return bool(made[1].same_contents(before[1]))


def verdict_again(seen: Observation, held: HeldHere) -> Judged | None:
    """Return the last verdict on the allocations if it told nothing, and nothing that it follows
    from has changed.
    """
    if seen.last is None or seen.doubted:
        return None
    last = seen.last.seen
    same = (
        last.answers.get(Holdings()) == held
        and last.consumers(held.providers) == seen.consumers(held.providers)
        and last.view.tree.same_contents(seen.view.tree)
        and last.policy.purge_after == seen.policy.purge_after
        and last.running == seen.running
    )
    return seen.last.judged if same else None
