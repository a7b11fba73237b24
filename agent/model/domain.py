"""A domain: a guest as the hypervisor shows it, whatever the records say."""

from dataclasses import dataclass

from agent.model.names import ConsumerUuid


@dataclass(frozen=True, slots=True)
class Domain:
    """``memory_mib`` in MiB; ``vcpus`` None if not known."""

    uuid: ConsumerUuid
    name: str
    memory_mib: int
    vcpus: int | None = None
