"""Whether a provider can give a consumer its share at once; Placement would refuse it without naming him."""

from agent.errors import ReshapeFailed
from agent.model.names import printable
from agent.model.provider_tree import ProviderTree


def check_room(tree: ProviderTree, place: str, resource_class: str, consumer: str, share: int) -> None:
    """``place``: the name or uuid of the provider in ``tree``.

    :raises ReshapeFailed: it gives a consumer less, or not in such steps, or nothing of the class.
    """
    record = tree.provider(place).inventory.get(resource_class, {}) if tree.exists(place) else {}
    # A driver need not write more than the total.
    least, most, step = record.get("min_unit", 1), record.get("max_unit", record.get("total", 0)), record.get("step_size", 1)
    if least <= share <= most and not share % step:
        return
    offers = f"gives a consumer {least} to {most} in steps of {step}" if record else "does not offer any"
    name = printable(tree.name_of(place) if tree.exists(place) else place)
    what = f"consumer {consumer} would have {share} {resource_class} of {name}, which {offers}"
    raise ReshapeFailed(what, "give the host back what it offered before, or move or delete the consumer first", consumer=consumer)
