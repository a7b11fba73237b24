"""Who serves which path."""

from collections.abc import Mapping

from agent.api.desk import Desk
from agent.api.metrics import Metrics
from agent.api.resources.audits import Audits, OneAudit, Reload, Waiting
from agent.api.resources.builds import Builds
from agent.api.resources.claims import Claims, OneClaim
from agent.api.resources.devices import CleanedDevice, DeviceClaims, Devices, DeviceUse, OneDeviceClaim
from agent.api.resources.guests import GuestImports, Guests, OneGuest
from agent.api.resources.instances import Allocation, Instances, OneInstance
from agent.api.resources.migrations import Migrations
from agent.api.resources.moves import STEPS, DroppedHalf, Moves, OneMove, Step
from agent.api.resources.nodes import Node, Nodes, Tree
from agent.api.resources.state import Figures, Health, Readiness
from agent.api.service import Service
from agent.api.waiting import WaitingRoom


def routes(service: Service, metrics: Metrics, waiters: int) -> Mapping[str, object]:
    """The resources by path. ``waiters`` is how many requests may wait at once for what the agent does not do by itself."""
    room, desk = WaitingRoom(waiters, "Placement, or for other things that the agent does not do by itself"), Desk(service, metrics)
    waiting = Waiting(service, room)
    return {
        "/healthz": Health(service),
        "/readyz": Readiness(service),
        "/metrics": Figures(metrics),
        "/v1/nodes": Nodes(service),
        "/v1/nodes/{uuid}": Node(service),
        "/v1/nodes/{uuid}/tree": Tree(service),
        "/v1/nodes/{uuid}/builds": Builds(desk),
        "/v1/audits": Audits(service, waiting),
        "/v1/audits/{id}": OneAudit(waiting),
        "/v1/reload": Reload(service, room),
        "/v1/claims": Claims(service, desk),
        "/v1/claims/{id}": OneClaim(service, desk),
        "/v1/moves": Moves(service, desk),
        "/v1/moves/{id}": OneMove(service, desk),
        "/v1/moves/{id}/drop": DroppedHalf(service, desk),
        **{f"/v1/moves/{{id}}/{word}": Step(service, desk, word) for word in STEPS},
        "/v1/devices": Devices(service),
        "/v1/devices/cleaned": CleanedDevice(service, desk),
        "/v1/devices/claims": DeviceClaims(service, desk),
        "/v1/devices/claims/{id}": OneDeviceClaim(service, desk),
        "/v1/devices/claims/{id}/allocate": DeviceUse(service, desk),
        "/v1/guests": Guests(service),
        "/v1/guests/import": GuestImports(service, desk),
        "/v1/guests/{uuid}": OneGuest(desk),
        "/v1/instances": Instances(service),
        "/v1/instances/{uuid}": OneInstance(service, desk),
        "/v1/instances/{uuid}/allocation": Allocation(service, desk, room),
        "/v1/migrations": Migrations(service),
    }
