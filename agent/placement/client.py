"""The client of Placement's API: one typed method per call.

Every call carries a microversion; values in a query are encoded, values in a path are checked
before. Each method raises :class:`~agent.errors.PlacementRefused` for an unexpected status and
:class:`~agent.errors.PlacementUnreachable` when no answer came.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

from agent.model.inventory import Allocation, Inventories, Resources
from agent.model.mirror import REPARENT
from agent.model.names import ConsumerUuid, ProviderUuid, is_custom, normal_uuid
from agent.model.provider_tree import SHARING_TRAIT
from agent.placement import clock
from agent.placement.answers import (
    AggregatesBody,
    AllocationBody,
    CandidatesBody,
    HeldByConsumer,
    HoldersBody,
    InventoriesBody,
    NotDocumented,
    Row,
    Rows,
    TraitNames,
    TraitsBody,
    UsagesBody,
    Versions,
    check_tree,
)
from agent.placement.exchange import Body, Exchange

WITH_CODES = "1.23"
INVENTORY = "1.26"
ALLOCATIONS = "1.28"
RESHAPE = "1.30"
CANDIDATES = "1.36"
# From this microversion on a consumer has a type, and every write of allocations has to name it.
CONSUMER_TYPES = "1.38"
# The type that Placement shows for a consumer without one.
UNTYPED = "unknown"

GENERATION = "resource_provider_generation"

NameKind = Literal["traits", "resource_classes"]

# Bytes of the names in one query. uWSGI has 4,096 bytes for a request by default, with its headers,
# and counts an address twice: one of 1,500 bytes is answered everywhere.
LONGEST_QUERY = 1300


class PlacementClient:
    """The client of Placement for the length of one cycle."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._send = exchange.send

    def _read(self, path: str, version: str, kind: type[Body]) -> Body:
        """Send a GET and return its decoded body."""
        return self.exchange.decode(self._send("GET", path, version), kind)

    def max_version(self) -> str:
        """Return the server's highest microversion.

        :raises PlacementUnreachable: the service that answers is not Placement.
        """
        answer = self._send("GET", "/", None, (200, 300))
        return self.exchange.decode(answer, Versions).versions[0].max_version

    # --- providers --------------------------------------------------------------------------------

    def tree(self, member: ProviderUuid) -> list[Row]:
        """Return all providers of the tree that holds ``member``; empty if Placement has none."""
        answer = self._send(
            "GET", f"/resource_providers?{urlencode({'in_tree': member})}", WITH_CODES, (200,)
        )
        rows = self.exchange.decode(answer, Rows).resource_providers
        try:
            check_tree(rows, member)
        except NotDocumented as error:
            raise self.exchange.foreign_answer(answer, str(error)) from error
        return rows

    def providers_with_trait(self, trait: str) -> list[Row]:
        """Return all providers that have ``trait``; empty if Placement does not know the trait."""
        answer = self._send(
            "GET", f"/resource_providers?{urlencode({'required': trait})}", WITH_CODES, (200, 400)
        )
        if answer.status == 400:
            return []
        return self.exchange.decode(answer, Rows).resource_providers

    def provider(self, uuid: ProviderUuid) -> Row | None:
        """Return one provider, ``None`` if Placement does not have it."""
        answer = self._send("GET", f"/resource_providers/{uuid}", WITH_CODES, (200, 404))
        return self.exchange.decode(answer, Row) if answer.status == 200 else None

    def provider_named(self, name: str) -> Row | None:
        """Return the provider that has ``name``, ``None`` if there is none.

        Its name may be spelt otherwise: a Placement on MySQL compares names without case and
        accents, also where it refuses a new name as a duplicate.
        """
        rows = self._rows({"name": name})
        same = [row for row in rows if row.name == name]
        return next(iter(same or (rows if len(rows) == 1 else ())), None)

    def sharing(self, aggregates: Iterable[str]) -> list[Row]:
        """Return the sharing providers that are in any of ``aggregates``, each once."""
        found = {}
        for chunk in _chunks(sorted(aggregates)):
            for row in self._rows(
                {"member_of": f"in:{','.join(chunk)}", "required": SHARING_TRAIT}
            ):
                found[row.uuid] = row
        return list(found.values())

    def members(self, aggregate: str) -> list[Row]:
        """Return the providers in an aggregate."""
        return self._rows({"member_of": aggregate})

    def _rows(self, query: Mapping[str, str]) -> list[Row]:
        return self._read(
            f"/resource_providers?{urlencode(query)}", WITH_CODES, Rows
        ).resource_providers

    def create_provider(self, uuid: ProviderUuid, name: str, parent: ProviderUuid | None) -> Row:
        """Create a provider, a root if ``parent`` is ``None``."""
        body = {"uuid": uuid, "name": name} | ({"parent_provider_uuid": parent} if parent else {})
        return self.exchange.decode(
            self._send("POST", "/resource_providers", WITH_CODES, (200,), body), Row
        )

    def update_provider(
        self, uuid: ProviderUuid, name: str, parent: ProviderUuid | None, version: str = WITH_CODES
    ) -> Row:
        """Rename a provider, or give it another parent (which needs ``REPARENT``).

        The request is not guarded by a generation: the last writer wins.
        """
        body = {"name": name} | ({"parent_provider_uuid": parent} if version == REPARENT else {})
        return self.exchange.decode(
            self._send("PUT", f"/resource_providers/{uuid}", version, (200,), body), Row
        )

    def delete_provider(self, uuid: ProviderUuid) -> bool:
        """Delete a provider; one that is gone already is no error. Return whether it existed."""
        return (
            self._send("DELETE", f"/resource_providers/{uuid}", WITH_CODES, (204, 404)).status
            == 204
        )

    # --- contents ---------------------------------------------------------------------------------

    def inventories(self, uuid: ProviderUuid) -> tuple[int, Inventories]:
        """Return the generation and the inventories of a provider."""
        body = self._read(f"/resource_providers/{uuid}/inventories", INVENTORY, InventoriesBody)
        return body.generation, cast(Inventories, body.inventories)

    def set_inventories(
        self, uuid: ProviderUuid, generation: int, inventories: Inventories
    ) -> tuple[int, Inventories]:
        """Replace all inventories of a provider; return the new generation and the records as
        stored.
        """
        sent = {GENERATION: generation, "inventories": inventories}
        body = self.exchange.decode(
            self._send("PUT", f"/resource_providers/{uuid}/inventories", INVENTORY, (200,), sent),
            InventoriesBody,
        )
        return body.generation, cast(Inventories, body.inventories)

    def traits(self, uuid: ProviderUuid) -> tuple[int, frozenset[str]]:
        """Return the generation and the traits of a provider."""
        body = self._read(f"/resource_providers/{uuid}/traits", WITH_CODES, TraitsBody)
        return body.generation, body.traits

    def set_traits(
        self, uuid: ProviderUuid, generation: int, traits: Iterable[str]
    ) -> tuple[int, frozenset[str]]:
        """Replace all traits of a provider; return the new generation and the traits."""
        sent = {GENERATION: generation, "traits": sorted(traits)}
        body = self.exchange.decode(
            self._send("PUT", f"/resource_providers/{uuid}/traits", WITH_CODES, (200,), sent),
            TraitsBody,
        )
        return body.generation, body.traits

    def aggregates(self, uuid: ProviderUuid) -> tuple[int, frozenset[str]]:
        """Return the generation and the aggregates (normalized uuids) of a provider."""
        body = self._read(f"/resource_providers/{uuid}/aggregates", WITH_CODES, AggregatesBody)
        return body.generation, frozenset(map(normal_uuid, body.aggregates))

    def set_aggregates(
        self, uuid: ProviderUuid, generation: int, aggregates: Iterable[str]
    ) -> tuple[int, frozenset[str]]:
        """Replace all aggregates of a provider; return the new generation and the aggregates."""
        sent = {GENERATION: generation, "aggregates": sorted(aggregates)}
        body = self.exchange.decode(
            self._send("PUT", f"/resource_providers/{uuid}/aggregates", WITH_CODES, (200,), sent),
            AggregatesBody,
        )
        return body.generation, frozenset(body.aggregates)

    def usages(self, uuid: ProviderUuid) -> Mapping[str, int]:
        """Return the allocated amount of each class of a provider; empty if it does not exist."""
        answer = self._send("GET", f"/resource_providers/{uuid}/usages", WITH_CODES, (200, 404))
        return self.exchange.decode(answer, UsagesBody).usages if answer.status == 200 else {}

    # --- names ------------------------------------------------------------------------------------

    def known_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Return the traits of ``names`` that the server knows."""
        wanted = frozenset(names)
        chunks = list(_chunks(sorted(wanted)))
        if not chunks:
            return frozenset()
        # All traits are one request too, and some kilobytes.
        query = f"?{urlencode({'name': 'in:' + ','.join(chunks[0])})}" if len(chunks) == 1 else ""
        return wanted.intersection(self._read(f"/traits{query}", WITH_CODES, TraitNames).traits)

    def ensure_name(self, kind: NameKind, name: str) -> None:
        """Create a custom name unless it exists."""
        self._send("PUT", f"/{kind}/{_custom(name)}", WITH_CODES, (201, 204))

    def delete_name(self, kind: NameKind, name: str) -> bool:
        """Delete a custom name unless a provider has it. Return whether it was deleted."""
        path = f"/{kind}/{_custom(name)}"
        return self._send("DELETE", path, WITH_CODES, (204, 404, 409)).status == 204

    # --- allocations ------------------------------------------------------------------------------

    def holdings(self, uuid: ProviderUuid) -> Mapping[ConsumerUuid, HeldByConsumer] | None:
        """Return the allocation of each consumer on one provider, ``None`` if there is no such
        provider.
        """
        answer = self._send(
            "GET", f"/resource_providers/{uuid}/allocations", ALLOCATIONS, (200, 404)
        )
        if answer.status == 404:
            return None
        return self.exchange.decode(answer, HoldersBody).allocations

    def consumers(self, uuid: ProviderUuid) -> Mapping[ConsumerUuid, Resources]:
        """Return the resources of each consumer on one provider; empty if there is no such
        provider.
        """
        return {consumer: held.resources for consumer, held in (self.holdings(uuid) or {}).items()}

    def allocation(self, consumer: ConsumerUuid, version: str = ALLOCATIONS) -> Allocation | None:
        """Return all allocations of a consumer, ``None`` if Placement does not know it.

        The consumer's type is set only if ``version`` is ``CONSUMER_TYPES`` or later.
        """
        path = f"/allocations/{quote(consumer, safe='')}"
        answer = self._send("GET", path, version)
        body = self.exchange.decode(answer, AllocationBody)
        if not body.allocations:
            return None
        kind = body.consumer_type
        resources = {uuid: entry.resources for uuid, entry in body.allocations.items()}
        generations = {uuid: entry.generation for uuid, entry in body.allocations.items()}
        return Allocation(
            consumer,
            resources,
            body.project_id,
            body.user_id,
            body.consumer_generation,
            generations,
            None if kind == UNTYPED else kind,
            None if answer.age is None else clock.now() - answer.age,
        )

    def set_allocation(
        self, consumer: ConsumerUuid, body: Mapping[str, Any], version: str = ALLOCATIONS
    ) -> None:
        """Replace all allocations of a consumer, guarded by the consumer generation in ``body``."""
        self._send("PUT", f"/allocations/{consumer}", version, (204,), body)

    def set_allocations(
        self, bodies: Mapping[ConsumerUuid, Mapping[str, Any]], version: str = ALLOCATIONS
    ) -> None:
        """Replace all allocations of many consumers in one atomic request."""
        self._send("POST", "/allocations", version, (204,), bodies)

    def delete_allocation(self, consumer: ConsumerUuid) -> bool:
        """Delete all allocations of a consumer, whatever its generation. Return whether there were
        any.
        """
        return (
            self._send("DELETE", f"/allocations/{consumer}", WITH_CODES, (204, 404)).status == 204
        )

    def candidates(self, query: str, version: str = CANDIDATES) -> CandidatesBody:
        """Return the allocation candidates for ``query``, which is encoded already."""
        return self._read(f"/allocation_candidates?{query}", version, CandidatesBody)

    def owner_usages(self, project_id: str, user_id: str | None = None) -> Mapping[str, int]:
        """Return the amount of each class allocated to a project, or to one user in it.

        The request is ``patient``: it is repeated up to three times.
        """
        query = {"project_id": project_id} | ({"user_id": user_id} if user_id is not None else {})
        answer = self._send("GET", f"/usages?{urlencode(query)}", WITH_CODES, patient=True)
        return self.exchange.decode(answer, UsagesBody).usages

    def reshape(
        self,
        inventories: Mapping[ProviderUuid, tuple[int, Inventories]],
        allocations: Iterable[Allocation],
    ) -> None:
        """Change inventories (each with its provider's generation) and allocations in one atomic
        request.
        """
        body = {
            "inventories": {
                uuid: {GENERATION: generation, "inventories": records}
                for uuid, (generation, records) in inventories.items()
            },
            "allocations": {
                allocation.consumer: allocation.as_body() for allocation in allocations
            },
        }
        self._send(
            "POST", "/reshaper", RESHAPE, (204,), body, self.exchange.transport.timeouts.reshape
        )


def _custom(name: str) -> str:
    if not is_custom(name):
        raise ValueError(f"{name!r} is no custom name")
    return name


def _chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of values, each short enough for one query."""
    chunk: list[str] = []
    length = 0
    for value in values:
        if chunk and length + len(value) + 3 > LONGEST_QUERY:
            yield chunk
            chunk, length = [], 0
        chunk.append(value)
        length += len(value) + 3  # a comma is three characters when encoded
    if chunk:
        yield chunk
