"""The records of one host as the API shows them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from agent.api.node_documents import (
    JsonObject,
    claim_document,
)
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import Claim, Purpose
from agent.store.reading import RecordReader
from agent.store.record_table import RecordBatch
from agent.store.records import Records
from agent.tracker.errors import UnknownClaim, UnknownInstance
from agent.tracker.stored_state import PlannedChange, is_departure

PAGE = 1000

Query = Mapping[str, Any]


class RecordViews:
    """The records of ``host``. Each call reads all records at one moment and blocks no writer.

    A list is ``{name: documents, "damaged": one line for each damaged record, "next": the marker of
    the next page}``.

    :raises StoreError: from every method: the records cannot be read.
    """

    def __init__(self, records: Records, host: str) -> None:
        self._records, self._host = records, host

    def of(self, host: str) -> "RecordViews":
        """Return the views of another host."""
        return RecordViews(self._records, host)

    # --- one by one -------------------------------------------------------------------------------

    def claim(self, id: str, purpose: Purpose | None = None) -> JsonObject:
        """Return a claim, open or released. If ``purpose`` is ``move``, ``id`` may be its
        migration's uuid.

        :raises UnknownClaim: there is none, or it has another purpose.
        """
        with self._records.reading() as reading:
            return _claim_documents(reading, [_found(reading, id, purpose)])[0]

    def move(self, id: str) -> JsonObject:
        """Return a move by its id or its migration's uuid: the record of the migration, its other
        open claims, and the claim with the move's id. The latter is left out if it is at the
        source, because the destination has a store of its own.

        :raises UnknownClaim: there is none.
        """
        with self._records.reading() as reading:
            claim = _found(reading, id, "move")
            migration = reading.migration(claim.origin) if claim.origin is not None else None
            if migration is None:
                raise UnknownClaim(
                    f"the migration of move {id} is not known any more",
                    "see those that are: agent migrations",
                )
            halves = [
                half
                for half in reading.claims_of(claim.instance)
                if migration.uuid in (half.migration, half.origin) and half.id != claim.id
            ]
            shown = halves if is_departure(claim, migration) else [*halves, claim]
            return {
                "id": claim.id,
                "migration": asdict(migration),
                "claims": _claim_documents(reading, shown),
            }

    def instance(self, uuid: str) -> JsonObject:
        """Return an instance, deleted or not.

        :raises UnknownInstance: no record knows it.
        """
        with self._records.reading() as reading:
            found = reading.instance(ConsumerUuid(uuid))
        if found is None:
            raise UnknownInstance(f"no record of instance {uuid}", "see /v1/instances")
        return asdict(found)

    def places(self, instance: str) -> frozenset[ProviderUuid]:
        """Return the nodes on which an instance has open claims.

        :raises UnknownInstance: no record knows it.
        """
        self.instance(instance)
        with self._records.reading() as reading:
            return frozenset(claim.node for claim in reading.claims_of(ConsumerUuid(instance)))

    # --- lists ------------------------------------------------------------------------------------

    def claims(self, query: Query) -> JsonObject:
        """Return a page of open claims, of one ``node`` or ``instance`` if the query names them."""
        with self._records.reading() as reading:
            nodes = [uuid for uuid in self._nodes(reading) if query.get("node", uuid) == uuid]
            marker, limit = query.get("marker", ""), query.get("limit", PAGE)
            if "instance" in query:
                held = sorted(
                    reading.claims_of(ConsumerUuid(query["instance"])), key=attrgetter("id")
                )
                some = [claim for claim in held if claim.node in nodes and claim.id > marker][
                    :limit
                ]
                found = RecordBatch(tuple(some), last=some[-1].id if some else "")
            else:
                found = reading.claims(nodes, marker, limit)
            return _page("claims", found, limit, lambda some: _claim_documents(reading, some))

    def instances(self, query: Query) -> JsonObject:
        """Return a page of the instances that the host owns."""
        return self._list("instances", query, RecordReader.instances, asdict)

    def migrations(self, query: Query) -> JsonObject:
        """Return a page of the migrations from, to and on the host."""
        return self._list("migrations", query, RecordReader.migrations, asdict)

    def devices(self, query: Query) -> JsonObject:
        """Return a page of the host's devices."""
        return self._list("devices", query, RecordReader.devices, asdict)

    def _list(
        self,
        name: str,
        query: Query,
        read: Callable[[RecordReader, list[ProviderUuid], str, int], RecordBatch[Any]],
        document: Callable[[Any], JsonObject],
    ) -> JsonObject:
        with self._records.reading() as reading:
            marker, limit = query.get("marker", ""), query.get("limit", PAGE)
            found = read(reading, self._nodes(reading), marker, limit)
            return _page(name, found, limit, lambda some: [document(record) for record in some])

    def _nodes(self, reading: RecordReader) -> list[ProviderUuid]:
        return [node.uuid for node in reading.nodes(self._host).records]


def made_claim_document(planned: PlannedChange, node_name: str | None) -> JsonObject | None:
    """Return the document of the claim that an operation made, without reading the store again;
    None if it made none or its node's name is not known.
    """
    if node_name is None or (made := planned.made) is None:
        return None
    return claim_document(*made, printable(node_name))


def _found(reading: RecordReader, id: str, purpose: Purpose | None) -> Claim:
    claim = reading.claim(id)
    if claim is None and purpose == "move":
        claim = reading.claim_of(ConsumerUuid(id))
    if claim is None or purpose not in (None, claim.purpose):
        what = (
            "claim"
            if claim is None or purpose is None
            else {"move": "move", "devices": "claim of devices", "instance": "claim of a guest"}[
                purpose
            ]
        )
        raise UnknownClaim(
            f"no {what} {id}", "see claims: agent claims; see moves: agent migrations"
        )
    return claim


def _page(
    name: str,
    found: RecordBatch[Any],
    limit: int,
    documents: Callable[[Sequence[Any]], Sequence[JsonObject]],
) -> JsonObject:
    damaged = [printable(f"{row.table} {row.key}: {row.why}") for row in found.damaged]
    is_last = len(found.records) + len(damaged) < limit
    return {
        name: documents(found.records),
        "damaged": damaged,
        "next": None if is_last else found.last,
    }


def _claim_documents(reading: RecordReader, claims: Sequence[Claim]) -> list[JsonObject]:
    devices, units = reading.held_by([claim.id for claim in claims]) if claims else ((), ())
    found = {uuid: reading.node(uuid) for uuid in {claim.node for claim in claims}}
    names = {uuid: printable(node.name) for uuid, node in found.items() if node is not None}
    return [claim_document(claim, devices, units, names.get(claim.node)) for claim in claims]
