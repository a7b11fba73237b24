"""One operation to Placement: the request, and what its answer makes of the provider.

Every function takes the provider as the mirror has it and returns it as Placement has it afterwards. A change by
somebody else comes back as :class:`~agent.errors.GenerationConflict`: the plan is then thrown away and made anew.
"""

import logging
from dataclasses import replace

from agent.errors import GenerationConflict, PlacementRefused, ProviderIdentityConflict, ProviderNameConflict
from agent.model.names import printable
from agent.model.operation import CreateProvider, DeleteProvider, RenameProvider, ReparentProvider, SetAggregates, SetInventory, SetTraits
from agent.model.provider_tree import Provider
from agent.placement import codes
from agent.placement.client import REPARENT, WITH_CODES, Client, Row
from agent.placement.reading import read_provider

LOG = logging.getLogger(__name__)


def create(client: Client, operation: CreateProvider) -> Provider:
    """Create the provider; the answer says all about it, so nothing needs to be read.

    :raises GenerationConflict: it is there already, just so, or its parent is not.
    :raises ProviderNameConflict: another provider has the name.
    :raises ProviderIdentityConflict: the uuid exists with another name or parent.
    """
    wanted = operation.provider
    try:
        row = client.create_provider(wanted.uuid, wanted.name, operation.parent)
    except PlacementRefused as error:
        if error.status == 400 and operation.parent:
            raise GenerationConflict(f"the parent of {printable(wanted.name)} went away") from error
        if error.status != 409 or error.placement_code != codes.DUPLICATE_NAME:
            raise
        raise _taken(client, operation) from error
    LOG.info("created provider %s (%s)", printable(row.name), row.uuid)
    return Provider(row.uuid, row.name, row.generation, row.parent_uuid)


def _taken(client: Client, operation: CreateProvider) -> GenerationConflict | ProviderNameConflict | ProviderIdentityConflict:
    """Why a provider could not be created. The server has one code for a taken name and a taken uuid."""
    wanted, name = operation.provider, printable(operation.provider.name)
    there = client.provider(wanted.uuid)
    if there is not None and (there.name, there.parent_uuid) == (wanted.name, operation.parent):
        LOG.info("adopted provider %s (%s), which was created meanwhile", name, wanted.uuid)
        return GenerationConflict(f"provider {name} was created meanwhile")
    if there is not None:
        return ProviderIdentityConflict(
            f"provider {wanted.uuid} is called {printable(there.name)!r} under {there.parent_uuid or 'no parent'} in Placement, "
            f"the node wants {name!r} under {operation.parent or 'no parent'}",
            "rename or move it in Placement, or delete it there if it is a left-over",
        )
    holder = client.provider_named(wanted.name)
    if holder is None:
        return GenerationConflict(f"provider {name} was renamed or deleted meanwhile")
    if operation.parent is None:
        remedy = f"if this is the same host, write {holder.uuid} into the compute_id file of the store; else rename one of the hosts, or delete that provider"
    else:
        remedy = "rename or delete that provider"
    return ProviderNameConflict(
        f"the name {name!r} of provider {wanted.uuid} is held by provider {holder.uuid} in Placement", remedy, holder=holder.uuid, uuid=wanted.uuid
    )


def delete(client: Client, operation: DeleteProvider) -> None:
    """Delete the provider."""
    try:
        client.delete_provider(operation.provider.uuid)
    except PlacementRefused as error:
        if error.status == 409 and error.placement_code == codes.HAS_CHILDREN:
            raise GenerationConflict(f"somebody put a child below {printable(operation.provider.name)}") from error
        raise
    LOG.info("deleted provider %s (%s)", printable(operation.provider.name), operation.provider.uuid)


def move(client: Client, operation: RenameProvider | ReparentProvider, present: Provider) -> Provider:
    """Rename the provider or give it another parent."""
    parent = operation.parent if isinstance(operation, ReparentProvider) else present.parent_uuid
    version = REPARENT if isinstance(operation, ReparentProvider) else WITH_CODES
    row = client.update_provider(present.uuid, operation.provider.name, parent, version)
    return replace(present, name=row.name, parent_uuid=row.parent_uuid, generation=row.generation)


def set_contents(client: Client, operation: SetInventory | SetTraits | SetAggregates, present: Provider) -> Provider:
    """Replace inventory, traits or aggregates, guarded by the generation of ``present``."""
    generation = present.generation or 0
    try:
        if isinstance(operation, SetInventory):
            generation, inventory = client.set_inventories(present.uuid, generation, operation.new)
            return replace(present, generation=generation, inventory=inventory)
        if isinstance(operation, SetAggregates):
            generation, aggregates = client.set_aggregates(present.uuid, generation, operation.new)
            return replace(present, generation=generation, aggregates=aggregates)
        return _set_traits(client, operation, present)
    except PlacementRefused as error:
        if error.status == 404 or codes.is_conflict(error):
            raise GenerationConflict(f"provider {printable(present.name)} was changed meanwhile: {error.message}") from error
        raise


def _set_traits(client: Client, operation: SetTraits, present: Provider) -> Provider:
    """Replace the traits. The server answers 500 to a race that it lost inside this call, so that is looked at twice."""
    try:
        generation, traits = client.set_traits(present.uuid, present.generation or 0, operation.new)
    except PlacementRefused as error:
        if error.status != 500:
            raise
        there = read_provider(client, Row(present.uuid, present.name, 0, present.parent_uuid))
        if there.traits == operation.new:
            return there
        if there.traits != operation.old:
            raise GenerationConflict(f"the traits of {printable(present.name)} were changed meanwhile") from error
        generation, traits = client.set_traits(present.uuid, there.generation or 0, operation.new)
        present = there
    return replace(present, generation=generation, traits=traits)
