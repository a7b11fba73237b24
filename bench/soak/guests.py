"""What an orchestrator does to the host of a soak all the time: guests come and go, and claims are made and given back, also while parts are
away.
"""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agent.api.client import ApiProblem, ApiUnreachable
from agent.model.instance import Flavor
from bench.soak.site import Site
from tests.support.libvirt_host import guest_uuid
from tests.support.placement import PROJECT, USER
from tests.support.site import flavor_body
from tests.support.tracking import uuid_of

FLAVOR = Flavor("soak", "soak", 1, 16, root_gb=1)
HELD = {"VCPU": 1, "MEMORY_MB": 16, "DISK_GB": 1}
MOST = 4


class Guests:
    """``done``: how often each operation was done. ``refused``: answers other than the wanted one, of which there is to be none."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site, self._dice = site, dice
        self._number = 0
        self.built: list[str] = []
        self.done: Counter[str] = Counter()
        self.refused: list[str] = []
        self._resources: Mapping[str, Any] = {site.root: HELD}

    def step(self, *, whole: bool) -> None:
        """Do one thing. ``whole``: Placement and libvirtd are there, so that guests can come and go."""
        try:
            if not whole or self._dice.random() < 0.7:
                self._claim_and_abort()
            elif len(self.built) < MOST and self._dice.random() < 0.6:
                self._build()
            elif self.built:
                self._delete(self.built[self._dice.randrange(len(self.built))])
        except (ApiProblem, ApiUnreachable) as error:
            self.refused.append(str(error))

    def heal(self) -> None:
        """Write the allocations of the guests again that Placement has lost with its database."""
        other = self._site.placement.other
        for name in self.built:
            uuid = guest_uuid(name)
            if not other.allocations(uuid)["allocations"]:
                other.claim(self._resources, uuid)

    def end(self) -> None:
        """Delete all guests."""
        for name in list(self.built):
            self._delete(name)

    def _claim_and_abort(self) -> None:
        name = self._new_name("claim")
        self._create_claim(name)
        self._site.client.abort_claim(uuid_of(f"claim-{name}"))
        self.done["claim and abort"] += 1

    def _build(self) -> None:
        name = self._new_name("guest")
        uuid = guest_uuid(name)
        self._site.placement.other.claim(self._resources, uuid)
        self.built.append(name)
        self._create_claim(name, allocations={self._site.root: {"resources": HELD}})
        self._site.operator.start(name, paused=True, nova=True)
        self._update(uuid, vm_state="active")
        self.done["build"] += 1

    def _delete(self, name: str) -> None:
        self.built.remove(name)
        # As nova does, first, so that nobody misses its domain.
        self._update(guest_uuid(name), task_state="deleting")
        domain = self._site.operator.connection.lookupByName(name)
        domain.destroy()
        domain.undefine()
        # The agent removes the allocation.
        self._update(guest_uuid(name), deleted=True)
        self.done["delete"] += 1

    def _create_claim(self, name: str, **more: Any) -> None:
        instance = {"uuid": guest_uuid(name), "project_id": PROJECT, "user_id": USER}
        body = {
            "id": uuid_of(f"claim-{name}"),
            "node": self._site.root,
            "instance": instance,
            "flavor": flavor_body(FLAVOR),
            **more,
        }
        self._site.client.create_claim(body)

    def _update(self, uuid: str, **states: Any) -> None:
        client = self._site.client
        client.update_instance(uuid, client.instance(uuid)["version"], states)

    def _new_name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"
