"""The commands of OpenStack that show or mend an allocation, as the drift of an observer names
them. Pure.
"""

import re
import shlex
from collections.abc import Iterable

from agent.model.facts import Domain
from agent.model.inventory import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid, printable

# Without a version osc-placement takes 1.0. It knows unset from 1.12 on, and guards a write by the
# consumer's generation from 1.28 on; from 1.38 on it sends a type, which consumers of nova lack.
PLACEMENT = "openstack --os-placement-api-version 1.28"
_ALLOCATION = f"{PLACEMENT} resource provider allocation"
_SHOW = "openstack server show -f value -c OS-EXT-STS:task_state -c status"
# Without a task, in these nova does nothing to a server.
_AT_REST = "None (ACTIVE|ERROR|PAUSED|RESCUE|SHELVED|SHELVED_OFFLOADED|SHUTOFF|SUSPENDED)"


def show(server: ConsumerUuid) -> str:
    """Return the command that shows where nova has a server, and what it does."""
    return (
        f"openstack server show -c OS-EXT-SRV-ATTR:host -c OS-EXT-STS:task_state -c status {server}"
    )


def started(server: ConsumerUuid) -> str:
    """Return how nova-compute removes the guest of a server that was deleted."""
    return (
        f"if nova-compute is down: {show(server)}; if nova has deleted it, start nova-compute: "
        "within half an hour it destroys the guests of all deleted servers"
    )


def if_at_rest(server: ConsumerUuid, host: str | None, *commands: str) -> str:
    """Return ``commands``, carried out only while nova has a server on ``host``, or on no host, and
    does nothing to it.
    """
    return _if(server, f"grep -xE {shlex.quote(f'{_literal(str(host))} {_AT_REST}')}", commands)


def if_elsewhere(server: ConsumerUuid, host: str, *commands: str) -> str:
    """Return ``commands``, carried out only while nova has a server on another host than ``host``
    and does nothing to it.
    """
    here = shlex.quote(f"^(None|{_literal(host)}) ")
    at_rest = shlex.quote(f"[^ ]+ {_AT_REST}")
    return _if(server, f"grep -vE {here} | grep -xE {at_rest}", commands)


def _if(server: ConsumerUuid, test: str, commands: Iterable[str]) -> str:
    shown = f"{_SHOW} -c OS-EXT-SRV-ATTR:host {server} | xargs | {test}"
    return " && ".join((shown, *commands))


def _literal(text: str) -> str:
    """Return the regular expression of grep that matches ``text`` alone."""
    return re.sub(r"[][.*+?(){}|^$\\]", r"\\\g<0>", text)


def if_unknown(consumer: ConsumerUuid, *commands: str) -> str:
    """Return ``commands``, carried out only if nova itself answers that there is no such server."""
    shown = f"openstack server show {consumer} 2>&1 | grep -i '^no server'"
    return " && ".join((shown, *commands))


def if_orphaned(consumer: ConsumerUuid, provider: ProviderUuid, *commands: str) -> str:
    """Return ``commands``, carried out only if a consumer is neither a server nor a move under way
    of the node of ``provider``, which the consumer holds something of.
    """
    listed = f"nova-manage placement audit --verbose --resource_provider {provider}"
    return if_unknown(consumer, f"{listed} | grep {consumer}", *commands)


def if_died(migration: ConsumerUuid, host: str, *commands: str) -> str:
    """Return ``commands``, carried out only if a consumer is a migration from or to ``host`` and
    nova does nothing to its server.
    """
    listed = (
        "openstack --os-compute-api-version 2.59 server migration list -f value -c UUID "
        f"-c 'Server UUID' --host {shlex.quote(host)} | sed -n 's/^{migration} //p'"
    )
    test = f"{listed} | xargs -r {_SHOW} | xargs | grep -xE {shlex.quote(_AT_REST)}"
    return " && ".join((test, *commands))


def destroy(server: ConsumerUuid, *, running: bool) -> str:
    """Return the command that removes a guest from the hypervisor on which it runs."""
    return f"virsh destroy {server} && " * running + f"virsh undefine --nvram {server}"


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


def unset(consumer: ConsumerUuid, providers: Iterable[ProviderUuid]) -> str:
    """Return the command that takes the shares of ``providers`` from an allocation."""
    options = "".join(f" --provider {uuid}" for uuid in sorted(providers))
    return f"{_ALLOCATION} unset{options} {consumer}"


def delete(consumer: ConsumerUuid) -> str:
    """Return the command that deletes a whole allocation."""
    return f"{_ALLOCATION} delete {consumer}"


def replace_allocation(allocation: Allocation) -> str:
    """Return the command that replaces the allocation of a consumer by ``allocation``; of an
    unknown owner, nova is asked.
    """
    options = "".join(
        f" --allocation rp={uuid},"
        + ",".join(f"{name}={amount}" for name, amount in sorted(resources.items()))
        for uuid, resources in sorted(allocation.resources.items())
    )
    server = allocation.consumer
    # Placement takes any text as an owner.
    project, user = (
        shlex.quote(known) if known else f"$(openstack server show -f value -c {column} {server})"
        for known, column in (
            (allocation.project_id, "project_id"),
            (allocation.user_id, "user_id"),
        )
    )
    owner = f"--project-id {project} --user-id {user}"
    return f"{_ALLOCATION} set {owner}{options} {allocation.consumer}"


def guest_name(guest: Domain) -> str:
    """Return the name and the uuid of a guest, for messages."""
    return f"guest {printable(guest.name)} ({guest.uuid})"
