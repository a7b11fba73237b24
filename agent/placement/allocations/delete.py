"""Deleting a consumer: guarded, as long as it is as it was read; or forced, whatever it has become."""

from dataclasses import replace
from enum import Enum

from agent.errors import PlacementError
from agent.placement import codes
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.errors import ConsumerChanged
from agent.placement.allocations.writing import repeated, write
from agent.placement.client import PlacementClient


class Deleted(Enum):
    """What became of a consumer that is gone now."""

    DELETED = "deleted"
    ABSENT = "was absent"


def delete(client: PlacementClient, consumer: str) -> Deleted:
    """Take everything from a consumer.

    :raises ConsumerChanged: somebody else was faster every time.
    :raises BadRequest: it is no uuid.
    """
    uuid = consumer_uuid(consumer)

    def attempt() -> Deleted:
        held = client.allocation(uuid)
        if held is None:
            # Nothing may be written: it would leave a consumer that nobody sees.
            return Deleted.ABSENT
        write(client, replace(held, resources={}))
        return Deleted.DELETED

    return repeated(client, attempt, f"consumer {uuid}", ConsumerChanged)


def delete_forced(client: PlacementClient, consumer: str) -> Deleted:
    """Take everything from a consumer without looking. No generation moves, so that no other client notices.

    :raises BadRequest: it is no uuid.
    """
    uuid = consumer_uuid(consumer)
    try:
        had = client.delete_allocation(uuid)
    except PlacementError as error:
        if not codes.may_be_applied(error):
            raise
        client.delete_allocation(uuid)
        # Whether it had anything when it was asked for first, nobody can say; now it has nothing.
        return Deleted.DELETED
    return Deleted.DELETED if had else Deleted.ABSENT
