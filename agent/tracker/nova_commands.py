"""The commands of OpenStack that show or mend an allocation, as the drift of an observer names
them. Pure.
"""

import shlex
from collections.abc import Iterable

from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid

_ALLOCATION = "openstack resource provider allocation"


def show(server: ConsumerUuid) -> str:
    """Return the command that shows where nova has a server, and what it does."""
    return (
        f"openstack server show -c OS-EXT-SRV-ATTR:host -c OS-EXT-STS:task_state -c status {server}"
    )


def migrate(server: ConsumerUuid) -> str:
    """Return the command that moves a server to another host, where nova chooses CPUs, cells and
    devices anew.
    """
    return f"openstack server migrate {server}"


def heal(server: ConsumerUuid, *, force: bool = False) -> str:
    """Return the command that gives a server the allocation of its flavor on the root provider of
    its node. ``force``: instead of the one that it has, on whatever providers.
    """
    return f"nova-manage placement heal_allocations --instance {server}" + " --force" * force


def audit(root: ProviderUuid) -> str:
    """Return the command that lists the consumers of a root provider that are neither a server of
    its node nor a move under way.
    """
    return f"nova-manage placement audit --verbose --resource_provider {root}"


def unset(consumer: ConsumerUuid, providers: Iterable[ProviderUuid]) -> str:
    """Return the command that takes the shares of ``providers`` from an allocation."""
    options = "".join(f" --provider {uuid}" for uuid in sorted(providers))
    return f"{_ALLOCATION} unset{options} {consumer}"


def delete(consumer: ConsumerUuid) -> str:
    """Return the command that deletes a whole allocation."""
    return f"{_ALLOCATION} delete {consumer}"


def replace_allocation(allocation: Allocation) -> str:
    """Return the command that replaces the allocation of a consumer by ``allocation``."""
    options = "".join(
        f" --allocation rp={uuid},"
        + ",".join(f"{name}={amount}" for name, amount in sorted(resources.items()))
        for uuid, resources in sorted(allocation.resources.items())
    )
    # Placement takes any text as an owner.
    project, user = shlex.quote(allocation.project_id), shlex.quote(allocation.user_id)
    owner = f"--project-id {project} --user-id {user}"
    return f"{_ALLOCATION} set {owner}{options} {allocation.consumer}"
