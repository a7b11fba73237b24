"""What was written of a node's inventories, looked at once more: what is over-committed now, which the server accepts without a word."""

import logging
from collections.abc import Container

from agent.model.inventory import capacity
from agent.model.names import ProviderUuid, printable
from agent.model.operation import SetInventory
from agent.model.report import Drift
from agent.placement.client import PlacementClient
from agent.placement.flush import Flushed

LOG = logging.getLogger(__name__)


def overcommitted(client: PlacementClient, flushed: Flushed, held: Container[ProviderUuid]) -> list[Drift]:
    """The classes of which a smaller record leaves less than is used. Not of what is ``held``, which waits for just that to end."""
    drift = []
    for one in flushed.outcomes:
        operation = one.operation
        if one.status != "done" or not isinstance(operation, SetInventory) or operation.provider.uuid in held:
            continue
        shrunk = [name for name, record in operation.new.items() if name in operation.old and capacity(record) < capacity(operation.old[name])]
        used = client.usages(operation.provider.uuid) if shrunk else {}
        for name in shrunk:
            record, amount = operation.new[name], used.get(name, 0)
            # All of it is reserved for whoever has it already, as a device for one time is.
            closed = record["reserved"] == record["total"] >= amount
            if amount > capacity(record) and not closed:
                text = f"over-committed {name} {amount} of {capacity(record)} on {printable(operation.provider.name)}"
                LOG.warning(text)
                drift.append(Drift("overcommitted", "warning", text, "move consumers away; new claims are refused", operation.provider.uuid))
    return drift
