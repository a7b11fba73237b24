"""nova's report client, with the calls of the resource tracker about the tree of a compute node
answered from the agent's mirror.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from keystoneauth1.adapter import Adapter
from nova import exception
from nova.scheduler.client import report

from agent.errors import (
    AgentError,
    GenerationConflict,
    PlacementRefused,
    ReshapeConflict,
    ReshapeFailed,
)
from agent.model.inventory import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import CreateProvider, DeleteProvider, Reshape, SetInventory
from agent.model.provider_tree import ProviderTree
from agent.nova.node import LazyAllocations, MirroredNode
from agent.placement.flush import FlushResult
from agent.placement.mirror import Freshness
from agent.placement.server import PlacementStorage, Server
from agent.placement.transport import Timeouts, Transport

LOG = logging.getLogger(__name__)


class ReportClientAdapter:
    """What :class:`agent.placement.transport.Transport` needs of a keystoneauth adapter, on the
    methods ``get``, ``put``, ``post`` and ``delete`` of nova's report client.

    ``endpoint``: the name of this Placement, for messages and as the key of what is stored.
    Timeouts are those of nova's options.
    """

    region_name: str | None = None
    interface: str | None = None
    session: Any = None

    def __init__(self, client: Any, endpoint: str) -> None:
        self._client, self._endpoint = client, endpoint
        # Of each thread, because nova-compute serves its own requests beside the audit.
        self._ids = threading.local()

    @contextmanager
    def under(self, global_request_id: str | None) -> Iterator[None]:
        """Send the requests of this thread under the id of nova's request, instead of the
        agent's.
        """
        self._ids.sent = global_request_id
        try:
            yield
        finally:
            self._ids.sent = None

    def get_endpoint(self) -> str:
        """Return the name of this Placement."""
        return self._endpoint

    def request(
        self,
        path: str,
        method: str,
        *,
        microversion: str | None,
        global_request_id: str,
        json: Any = None,
        **_others: Any,
    ) -> Any:
        """Send one request, and return its answer."""
        send = getattr(self._client, method.lower())
        body = () if method in ("GET", "DELETE") else (json,)
        return send(
            path,
            *body,
            version=microversion,
            global_request_id=getattr(self._ids, "sent", None) or global_request_id,
        )


class MirroredReportClient:
    """``client``, nova's report client, with the tree of each compute node kept in a mirror. Every
    other call is nova's own.

    Raises nova's exceptions.
    """

    def __init__(self, client: Any, endpoint: str, storage: PlacementStorage) -> None:
        self._client = client
        self._adapter = ReportClientAdapter(client, endpoint)
        # One request at a time, so that no thread is started in nova's process.
        transport = Transport(
            cast(Adapter, self._adapter),
            timeouts=Timeouts(),
            max_in_flight=1,
            cancelled=threading.Event(),
        )
        self._server = Server(transport, "http", storage)
        self._nodes: dict[str, MirroredNode] = {}
        self._names: dict[str, str] = {}
        # The roots of which it is unknown whether their last reshape was applied.
        self._undecided: set[str] = set()
        # The root of each thread's last tree: other roots of a tree share with it, and may be nodes
        # of this process too.
        self._given = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _node(self, uuid: str) -> MirroredNode:
        return self._nodes.setdefault(
            uuid, MirroredNode(self._server, ProviderUuid(uuid), Freshness())
        )

    # --- what the resource tracker asks -----------------------------------------------------------

    def get_provider_subtree_and_ensure_root(
        self, context: Any, rp_uuid: str, *, name: str, **_others: Any
    ) -> ProviderTree:
        """Return the node's tree for changes."""
        self._names[name] = self._given.root = rp_uuid
        with self._adapter.under(context.global_id):
            try:
                return self._node(rp_uuid).tree(name)
            except GenerationConflict as error:
                raise _update_conflict(rp_uuid, error) from error
            except AgentError as error:
                LOG.error("%s", error.message)
                raise exception.ResourceProviderRetrievalFailed(uuid=rp_uuid) from error

    def get_allocations_for_provider_tree(self, context: Any, nodename: str) -> LazyAllocations:
        """Return the allocations on the node's tree, read when they are looked at."""
        uuid = self._names[nodename]

        def read() -> Mapping[ConsumerUuid, Allocation]:
            with self._adapter.under(context.global_id), _reading_allocations(uuid):
                return self._node(uuid).allocations()

        return LazyAllocations(read)

    def get_allocations_for_resource_provider(self, context: Any, rp_uuid: str) -> Any:
        """Return what the consumers hold of the node's root."""
        with self._adapter.under(context.global_id), _reading_allocations(rp_uuid):
            held = self._node(rp_uuid).holders()
        return report.ProviderAllocInfo(
            allocations={
                consumer: {"resources": dict(resources)} for consumer, resources in held.items()
            }
        )

    def update_from_provider_tree(
        self, context: Any, new_tree: ProviderTree, allocations: Any = None
    ) -> None:
        """Write what differs between the tree and Placement."""
        root = self._root_of(new_tree)
        with self._adapter.under(context.global_id):
            try:
                flushed = self._node(root).write(new_tree, allocations)
            except ReshapeConflict as error:
                raise self._reshape_conflict(root, error) from error
            except GenerationConflict as error:
                raise _update_conflict(root, error) from error
            except ReshapeFailed as error:
                raise exception.ReshapeFailed(error=str(error)) from error
            except AgentError as error:
                LOG.error("%s", error.message)
                if allocations is not None:
                    raise exception.ReshapeFailed(error=str(error)) from error
                raise exception.ResourceProviderSyncFailed() from error
        self._undecided.discard(root)
        _raise_failure(self._node(root), flushed, reshaping=allocations is not None)
        self._node(root).started = True

    def _root_of(self, tree: ProviderTree) -> str:
        """Return the node whose tree this is."""
        nodes = [root.uuid for root in tree.roots if root.uuid in self._nodes]
        given = getattr(self._given, "root", None)
        return given if given in nodes else nodes[0]

    def _reshape_conflict(self, root: str, error: ReshapeConflict) -> Any:
        """Return nova's exception for a reshape that met another change. nova repeats it a few
        times. Where the outcome stays unknown, it is a failure, with which nova-compute does not
        start.
        """
        unknown, before = error.outcome_unknown, root in self._undecided
        self._undecided.discard(root)
        if unknown and before:
            return exception.ReshapeFailed(error=str(error))
        if unknown:
            self._undecided.add(root)
        return exception.PlacementReshapeConflict(error=str(error))

    # --- what the manager asks --------------------------------------------------------------------

    def set_traits_for_provider(
        self,
        context: Any,
        rp_uuid: str,
        traits: Iterable[str],
        generation: int | None = None,
    ) -> None:
        """Replace the traits of a provider; ``generation`` is read if it is None.

        nova-compute calls this when its service is enabled or disabled, also during an audit in
        another thread. So the mirror is left alone: the audit finds the new generation.
        """
        client, uuid = self._server.client(), ProviderUuid(rp_uuid)
        with self._adapter.under(context.global_id):
            try:
                read = client.traits(uuid)[0] if generation is None else generation
                client.set_traits(uuid, read, traits)
            except GenerationConflict as error:
                raise _update_conflict(rp_uuid, error) from error
            except AgentError as error:
                raise exception.ResourceProviderUpdateFailed(
                    url=f"/resource_providers/{rp_uuid}/traits", error=error.message
                ) from error

    def delete_allocation_for_instance(
        self, context: Any, uuid: str, *arguments: Any, **options: Any
    ) -> bool:
        """Delete the allocation of an instance or a migration, as nova's own client does. What the
        mirror has of it would be taken for that of a deleted instance in each period.
        """
        done = self._client.delete_allocation_for_instance(context, uuid, *arguments, **options)
        for node in list(self._nodes.values()):
            node.note_release(ConsumerUuid(uuid))
        return bool(done)

    def remove_provider_tree_from_instance_allocation(
        self, context: Any, consumer_uuid: str, root_rp_uuid: str
    ) -> bool:
        """Remove a node's share from an allocation, as nova's own client does."""
        done = bool(
            self._client.remove_provider_tree_from_instance_allocation(
                context, consumer_uuid, root_rp_uuid
            )
        )
        if done and (node := self._nodes.get(root_rp_uuid)) is not None:
            node.note_release(ConsumerUuid(consumer_uuid))
        return done

    def invalidate_resource_provider(self, name_or_uuid: str, cacheonly: bool = False) -> None:
        """Drop what is remembered of a node."""
        node = self._nodes.get(self._names.get(name_or_uuid, name_or_uuid))
        if node is not None:
            node.forget()
        self._client.invalidate_resource_provider(name_or_uuid, cacheonly=cacheonly)

    def clear_provider_cache(self, init: bool = False) -> None:
        """Drop what is remembered of all nodes."""
        # A list, because another thread may add a node meanwhile.
        for node in list(self._nodes.values()):
            node.forget()
        self._client.clear_provider_cache(init=init)


@contextmanager
def _reading_allocations(uuid: str) -> Iterator[None]:
    """Raise nova's exception for allocations that cannot be read."""
    try:
        yield
    except AgentError as error:
        raise exception.ResourceProviderAllocationRetrievalFailed(
            rp_uuid=uuid, error=error.message
        ) from error


def _update_conflict(uuid: str, error: AgentError) -> Any:
    return exception.ResourceProviderUpdateConflict(uuid=uuid, generation=0, error=error.message)


def _raise_failure(node: MirroredNode, flushed: FlushResult, *, reshaping: bool) -> None:
    """Raise nova's exception for what could not be written, if anything could not. What could not
    be removed is no failure, except a device at the start of nova-compute.
    """
    if flushed.conflict is not None:
        raise _update_conflict(node.uuid, flushed.conflict)
    if flushed.outage is not None:
        LOG.error("%s", flushed.outage.message)
        if reshaping and not any(
            isinstance(outcome.operation, Reshape) and outcome.status == "done"
            for outcome in flushed.outcomes
        ):
            raise exception.ReshapeFailed(error=flushed.outage.message) from flushed.outage
        raise exception.ResourceProviderSyncFailed() from flushed.outage
    if node.refuses_start():
        raise exception.InventoryInUse(
            "; ".join(
                # What Placement said, for nova's own message.
                error.detail if isinstance(error, PlacementRefused) else error.message
                for error in flushed.errors
            )
        )
    failed = [
        outcome.operation
        for outcome in flushed.outcomes
        if outcome.status != "done"
        and not isinstance(outcome.operation, DeleteProvider)
        and not (
            isinstance(outcome.operation, SetInventory)
            and outcome.operation.provider.uuid in flushed.held
        )
    ]
    if not failed:
        return
    for error in flushed.errors:
        LOG.error("%s", error.message)
    for operation in failed:
        if isinstance(operation, CreateProvider):
            raise exception.ResourceProviderCreationFailed(name=operation.provider.name)
    raise exception.ResourceProviderSyncFailed()
