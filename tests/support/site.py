"""The local API over real records: hosts with a tracker, a Placement, and the bodies of requests
about their guests.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from agent.api.record_views import RecordViews
from agent.audit.context import AuditContext
from agent.driver.interface import Driver
from agent.driver.worker import DriverWorker
from agent.model.instance import Flavor
from agent.placement import clock
from agent.placement.server import Server
from agent.placement.transport import Timeouts, Transport
from agent.store.store import open_store
from agent.tracker.consumer_records import InstanceHosts
from agent.tracker.node_entry import SharedLease
from agent.tracker.tracker import TrackerServices
from agent.tree.policy import Policy
from tests.support.local_api import Answer, ApiHere, api_here
from tests.support.placement import PlacementServer
from tests.support.tracking import F1, PMEM, Host, World, device, guest, rows, uuid_of

GPUS = ("0000:80:00.0", "0000:81:00.0")
CARD, FUNCTIONS = "0000:05:00.0", ("0000:05:10.0", "0000:05:10.1")

Body = dict[str, Any]


class Site:
    """An API, with the test in the daemon's place. ``serve`` decides whose tracker answers."""

    def __init__(self, api: ApiHere, world: World, placement: PlacementServer) -> None:
        self.api, self.world, self.placement = api, world, placement
        self.call = api.call

    def serve(self, host: Host, *, audited: bool = True) -> Host:
        """The agent of ``host`` answers from now on."""
        transport = Transport(
            self.placement.adapter(),
            timeouts=Timeouts(5, 5, 5),
            max_in_flight=1,
            cancelled=threading.Event(),
        )
        server = Server(transport, "http", self.world.store)
        # No audit of the whole host is made here, so that no driver is ever asked.
        driver, worker = cast(Driver, object()), DriverWorker("none")
        shared = (
            SharedLease(host.records, host.name, 300, clock.now),
            InstanceHosts(host.records, host.name),
        )
        records = TrackerServices(
            host.tracker, host.usage_step, host.consumer_records, host.node_leases, *shared
        )
        self.api.service.set_records(RecordViews(host.records, host.name))
        self.api.service.set_context(
            AuditContext(
                server, driver, worker, Policy(), host.name, threading.Event(), tracking=records
            ),
            audited=audited,
        )
        return host

    def refused(
        self,
        code: str,
        status: int,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request that is refused so, and changes nothing at all."""
        before = rows(self.world)
        answer = self.call(method, target, body, headers)
        assert (answer.code, answer.status) == (code, status), answer
        assert rows(self.world) == before
        return answer


def with_devices(host: Host) -> Host:
    """Two GPUs, and a network card with two virtual functions."""
    card = device(host, CARD, "type-PF")
    host.devices = (
        card,
        *(device(host, one, "type-VF", CARD) for one in FUNCTIONS),
        *(device(host, one, tags={"kind": "gpu"}) for one in GPUS),
    )
    host.audit()
    return host


@contextmanager
def site_here(
    folder: Path, placement: PlacementServer, api: ApiHere | None = None
) -> Iterator[Site]:
    """A site without hosts; its records are in ``folder``. ``api``: one that others have used
    before, to save half a second.
    """
    with ExitStack() as stack:
        store = stack.enter_context(open_store(folder / "state"))
        yield Site(api or stack.enter_context(api_here()), World(store), placement)


# --- bodies ---------------------------------------------------------------------------------------


def flavor_body(flavor: Flavor) -> Body:
    """A flavor as it is sent."""
    return asdict(flavor)


def instance_body(name: str, **fields: Any) -> Body:
    """An instance as it is sent."""
    return {"uuid": guest(name), "project_id": "project", "user_id": "user", **fields}


def claim_body(host: Host, name: str, flavor: Flavor = F1, **fields: Any) -> Body:
    """A claim of room for the instance called ``name``, called ``claim-<name>``."""
    body = {
        "id": uuid_of(f"claim-{name}"),
        "node": host.node,
        "instance": instance_body(name),
        "flavor": flavor_body(flavor),
    }
    return {**body, **fields}


def move_body(
    host: Host, name: str, kind: str, flavor: Flavor | None = None, **fields: Any
) -> Body:
    """A move of the instance to the host, called ``move-<name>``."""
    body = {
        "id": uuid_of(f"move-{name}"),
        "type": kind,
        "node": host.node,
        "instance": instance_body(name),
    }
    return {**body, **({"flavor": flavor_body(flavor)} if flavor is not None else {}), **fields}


def devices_body(host: Host, name: str, *addresses: str, **fields: Any) -> Body:
    """A claim of devices by their addresses, called ``devices-<name>``."""
    wanted = [{"id": uuid_of(one), "count": 1, "spec": {"address": one}} for one in addresses]
    return {
        "id": uuid_of(f"devices-{name}"),
        "node": host.node,
        "instance": guest(name),
        "devices": wanted,
        **fields,
    }


def allocated(host: Host, **amounts: int) -> Body:
    """What the scheduler allocated on the host's root."""
    return {host.node: {"resources": amounts}}


PMEM_UNIT = {PMEM: 1}
