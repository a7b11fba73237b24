"""Who serves which path."""

from collections.abc import Mapping

from agent.api.timed_tracker import TimedTracker
from agent.api.metrics import Metrics
from agent.api.resources.audits import AuditsResource, AuditResource, ReloadResource, AuditWaiter
from agent.api.resources.builds import BuildsResource
from agent.api.resources.claims import ClaimsResource, ClaimResource
from agent.api.resources.devices import CleanedDeviceResource, DeviceClaimsResource, DevicesResource, DeviceUseResource, DeviceClaimResource
from agent.api.resources.guests import GuestImportsResource, GuestsResource, GuestResource
from agent.api.resources.instances import AllocationResource, InstancesResource, InstanceResource
from agent.api.resources.migrations import MigrationsResource
from agent.api.resources.moves import STEPS, DroppedHalfResource, MovesResource, MoveResource, MoveStepResource
from agent.api.resources.nodes import NodeResource, NodesResource, TreeResource
from agent.api.resources.state import MetricsResource, HealthResource, ReadinessResource
from agent.api.service import Service
from agent.api.wait_limit import WaitLimit


def routes(service: Service, metrics: Metrics, waiters: int) -> Mapping[str, object]:
    """The resources by path. ``waiters`` is how many requests may wait at once for what the agent does not do by itself."""
    room, timed_tracker = WaitLimit(waiters, "Placement, or for other things that the agent does not do by itself"), TimedTracker(service, metrics)
    waiting = AuditWaiter(service, room)
    return {
        "/healthz": HealthResource(service),
        "/readyz": ReadinessResource(service),
        "/metrics": MetricsResource(metrics),
        "/v1/nodes": NodesResource(service),
        "/v1/nodes/{uuid}": NodeResource(service),
        "/v1/nodes/{uuid}/tree": TreeResource(service),
        "/v1/nodes/{uuid}/builds": BuildsResource(timed_tracker),
        "/v1/audits": AuditsResource(service, waiting),
        "/v1/audits/{id}": AuditResource(waiting),
        "/v1/reload": ReloadResource(service, room),
        "/v1/claims": ClaimsResource(service, timed_tracker),
        "/v1/claims/{id}": ClaimResource(service, timed_tracker),
        "/v1/moves": MovesResource(service, timed_tracker),
        "/v1/moves/{id}": MoveResource(service, timed_tracker),
        "/v1/moves/{id}/drop": DroppedHalfResource(service, timed_tracker),
        **{f"/v1/moves/{{id}}/{word}": MoveStepResource(service, timed_tracker, word) for word in STEPS},
        "/v1/devices": DevicesResource(service),
        "/v1/devices/cleaned": CleanedDeviceResource(service, timed_tracker),
        "/v1/devices/claims": DeviceClaimsResource(service, timed_tracker),
        "/v1/devices/claims/{id}": DeviceClaimResource(service, timed_tracker),
        "/v1/devices/claims/{id}/allocate": DeviceUseResource(service, timed_tracker),
        "/v1/guests": GuestsResource(service),
        "/v1/guests/import": GuestImportsResource(service, timed_tracker),
        "/v1/guests/{uuid}": GuestResource(timed_tracker),
        "/v1/instances": InstancesResource(service),
        "/v1/instances/{uuid}": InstanceResource(service, timed_tracker),
        "/v1/instances/{uuid}/allocation": AllocationResource(service, timed_tracker, room),
        "/v1/migrations": MigrationsResource(service),
    }
