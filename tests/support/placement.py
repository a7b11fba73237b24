"""The real Placement for tests: inside the test's process, with no socket, every request logged and
disturbable.
"""

import contextlib
import functools
import gc
import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import requests
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from agent.model.names import ApiVersion
from tests.support import dump, placement_app
from tests.support.exchange import OBSERVER_HEADER, Exchange, LogReader, RequestLog
from tests.support.faults import Faults
from tests.support.transport import WSGITransport

# ---
# Somebody else who uses the same Placement: prepares a test's state and interferes, by
# plain REST.


PROJECT = "11111111-1111-1111-1111-111111111111"
USER = "22222222-2222-2222-2222-222222222222"


class OtherClient:
    """Each call does what it says or fails the test; generations are read just before a write."""

    def __init__(self, session: Session, url: str, version: str = "1.37") -> None:
        self.version = version
        self.adapter = Adapter(
            session,
            endpoint_override=url,
            service_type="placement",
            default_microversion=version,
            raise_exc=False,
        )

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        expect: Iterable[int] = (200, 201, 204),
        version: str | None = None,
    ) -> requests.Response:
        """One request; any other status than those expected fails the test."""
        extra = {"microversion": version or self.version} | ({} if body is None else {"json": body})
        response: requests.Response = self.adapter.request(path, method, **extra)
        assert response.status_code in expect, (
            f"{method} {path} -> {response.status_code} {response.text}"
        )
        return response

    # --- providers --------------------------------------------------------------------------------

    def create_provider(
        self, name: str, provider: str | None = None, parent: str | None = None
    ) -> str:
        """Create a provider; its uuid."""
        provider = provider or str(uuid.uuid4())
        body = {"uuid": provider, "name": name}
        self.call(
            "POST",
            "/resource_providers",
            body if parent is None else body | {"parent_provider_uuid": parent},
        )
        return provider

    def provider(self, provider: str) -> dict[str, Any]:
        """``{uuid, name, generation, parent_provider_uuid, root_provider_uuid}``."""
        found: dict[str, Any] = self.call("GET", f"/resource_providers/{provider}").json()
        return found

    def tree(self, provider: str) -> list[dict[str, Any]]:
        """The providers of the tree that has this member, empty when there is none."""
        found: list[dict[str, Any]] = self.call(
            "GET", f"/resource_providers?in_tree={provider}"
        ).json()["resource_providers"]
        return found

    def generation(self, provider: str) -> int:
        return int(self.provider(provider)["generation"])

    def rename(self, provider: str, name: str) -> None:
        self.call("PUT", f"/resource_providers/{provider}", {"name": name})

    def reparent(self, provider: str, parent: str | None) -> None:
        name = self.provider(provider)["name"]
        self.call(
            "PUT", f"/resource_providers/{provider}", {"name": name, "parent_provider_uuid": parent}
        )

    def delete_provider(self, provider: str) -> None:
        self.call("DELETE", f"/resource_providers/{provider}")

    # --- what a provider has ----------------------------------------------------------------------

    def set_inventory(self, provider: str, inventory: Mapping[str, int | Mapping[str, Any]]) -> int:
        """Replace the inventory, ``{"VCPU": 8}`` or ``{"VCPU": {"total": 8, "reserved": 1}}``; the
        new generation.
        """
        for resource_class in inventory:
            if resource_class.startswith("CUSTOM_"):
                self.call("PUT", f"/resource_classes/{resource_class}")
        records = {
            name: {"total": record} if isinstance(record, int) else dict(record)
            for name, record in inventory.items()
        }
        body = {"resource_provider_generation": self.generation(provider), "inventories": records}
        return self._put(provider, "inventories", body)

    def inventory(self, provider: str) -> dict[str, dict[str, Any]]:
        """``{class: {six fields}}``."""
        found: dict[str, dict[str, Any]] = self.call(
            "GET", f"/resource_providers/{provider}/inventories"
        ).json()["inventories"]
        return found

    def set_traits(self, provider: str, traits: Iterable[str]) -> int:
        """Replace the traits, creating custom ones; the new generation."""
        wanted = sorted(traits)
        for trait in wanted:
            if trait.startswith("CUSTOM_"):
                self.call("PUT", f"/traits/{trait}")
        body = {"resource_provider_generation": self.generation(provider), "traits": wanted}
        return self._put(provider, "traits", body)

    def traits(self, provider: str) -> set[str]:
        return set(self.call("GET", f"/resource_providers/{provider}/traits").json()["traits"])

    def set_aggregates(self, provider: str, aggregates: Iterable[str]) -> int:
        """Replace the aggregates; the new generation."""
        body = {
            "resource_provider_generation": self.generation(provider),
            "aggregates": sorted(aggregates),
        }
        return self._put(provider, "aggregates", body)

    def aggregates(self, provider: str) -> set[str]:
        return set(
            self.call("GET", f"/resource_providers/{provider}/aggregates").json()["aggregates"]
        )

    def _put(self, provider: str, what: str, body: Mapping[str, Any]) -> int:
        answer = self.call("PUT", f"/resource_providers/{provider}/{what}", body).json()
        return int(answer["resource_provider_generation"])

    # --- consumers --------------------------------------------------------------------------------

    def claim(
        self,
        allocations: Mapping[str, Mapping[str, int]],
        consumer: str | None = None,
        kind: str | None = None,
    ) -> str:
        """Give a consumer, of a type or of none, exactly these allocations, ``{provider: {class:
        amount}}``; its uuid.
        """
        consumer = consumer or str(uuid.uuid4())
        self._claim(allocations, consumer, (204,), kind)
        return consumer

    def can_claim(self, allocations: Mapping[str, Mapping[str, int]], consumer: str) -> bool:
        """As :meth:`claim`; returns whether there was enough."""
        return self._claim(allocations, consumer, (204, 409)) == 204

    def _claim(
        self,
        allocations: Mapping[str, Mapping[str, int]],
        consumer: str,
        expect: Iterable[int],
        kind: str | None = None,
    ) -> int:
        body = {
            "allocations": {
                provider: {"resources": dict(amounts)} for provider, amounts in allocations.items()
            },
            "project_id": PROJECT,
            "user_id": USER,
            "consumer_generation": self.allocations(consumer).get("consumer_generation"),
        }
        path = f"/allocations/{consumer}"
        if kind is not None:
            return self.call(
                "PUT", path, {**body, "consumer_type": kind}, expect, version="1.38"
            ).status_code
        return self.call("PUT", path, body, expect).status_code

    def move(self, source: str, target: str, expect: Iterable[int] = (204,)) -> int:
        """Give ``target`` all that ``source`` holds, and nothing else, at once; the status of the
        answer.
        """
        held, there = self.allocations(source), self.allocations(target)
        arriving = {
            "allocations": {
                provider: {"resources": one["resources"]}
                for provider, one in held["allocations"].items()
            }
        }
        owner = {"project_id": held["project_id"], "user_id": held["user_id"]}
        bodies = {
            source: {
                "allocations": {},
                **owner,
                "consumer_generation": held["consumer_generation"],
            },
            target: {**arriving, **owner, "consumer_generation": there.get("consumer_generation")},
        }
        return self.call("POST", "/allocations", bodies, expect).status_code

    def allocations(self, consumer: str) -> dict[str, Any]:
        """Placement's answer for a consumer, ``{"allocations": {}}`` when it is unknown."""
        found: dict[str, Any] = self.call("GET", f"/allocations/{consumer}").json()
        return found

    def release(self, consumer: str) -> None:
        """The unguarded DELETE, which moves no provider's generation."""
        self.call("DELETE", f"/allocations/{consumer}")


SERVICE_ROLES = "admin,service"
PREFIX = "/placement"


def observer_session(session: Session) -> Session:
    """Mark a session as the test's own: neither logged nor disturbed."""
    session.additional_headers[OBSERVER_HEADER] = "1"
    return session


def noauth_session(url: str, roles: str, http: requests.Session | None = None) -> Session:
    """A session as a client configured with a fixed endpoint and token has it."""
    auth = token_endpoint.Token(endpoint=url, token="test-user")
    return Session(auth=auth, session=http, additional_headers={"X-Roles": roles})


class Placement(LogReader):
    """What the in-process server and the one over HTTP have in common."""

    url: str
    max_version: str | None

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        """A keystoneauth session of a client; ``roles="admin"`` lacks the role that
        reshapes need.
        """
        raise NotImplementedError

    def adapter(self, roles: str = SERVICE_ROLES, version: str | None = None) -> Adapter:
        """The same as an adapter, with an optional default microversion."""
        return Adapter(
            self.session(roles),
            service_type="placement",
            default_microversion=version,
            raise_exc=False,
        )

    @functools.cached_property
    def other(self) -> OtherClient:
        """Another client of this Placement, unseen by the log and the faults."""
        version = (
            "1.37"
            if self.max_version is None or ApiVersion.of(self.max_version) >= ApiVersion(1, 37)
            else self.max_version
        )
        return OtherClient(observer_session(self.session()), self.url, version)

    def credentials(self, url: str | None = None, *, service_role: bool = True) -> dict[str, str]:
        """``[placement]`` of a client without keystone, of this server or of a proxy's ``url`` in
        front of it.
        """
        token = "a-token" if service_role else placement_app.ADMIN_ONLY_TOKEN
        return {"auth_type": "admin_token", "endpoint": url or self.url, "token": token}

    def dump(self) -> dict[str, Any]:
        """The whole state, see ``tests.support.dump``."""
        raise NotImplementedError


class PlacementServer(Placement):
    """A Placement of its own, empty at first. Any number live side by side; requests are handled
    one at a time.
    """

    def __init__(self, max_version: str | None = None) -> None:
        self.url = f"http://placement.test{PREFIX}"
        self.max_version = max_version
        self.faults = Faults()
        self._log = RequestLog()
        self._database = placement_app.memory_database()
        transport = WSGITransport(
            placement_app.application(max_version), self.url, self._serving, self._log, self.faults
        )
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.mount(self.url, transport)

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        return noauth_session(self.url, roles, self._http)

    @property
    def requests(self) -> list[Exchange]:
        return self._log.requests

    def clear(self) -> None:
        """Forget the log; state and faults stay."""
        self._log.clear()

    def reset(self) -> None:
        """Back to empty: state, log and faults."""
        with placement_app.ONE_AT_A_TIME:
            placement_app.copy_template(placement_app.connection_of(self._database))
        self.faults.clear()
        self.clear()

    def snapshot(self) -> sqlite3.Connection:
        """A copy of the state, for ``restore``."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        with placement_app.ONE_AT_A_TIME:
            placement_app.connection_of(self._database).backup(copy)
        return copy

    def restore(self, snapshot: sqlite3.Connection) -> None:
        """Have the state of a snapshot, of this server or another."""
        with placement_app.ONE_AT_A_TIME:
            target = placement_app.connection_of(self._database)
            # A cursor that nobody has finished yet would keep the database locked, and the copy
            # waiting for ever.
            gc.collect()
            target.rollback()
            snapshot.backup(target, sleep=0.01)

    def dump(self) -> dict[str, Any]:
        with placement_app.ONE_AT_A_TIME:
            return dump.dump(placement_app.connection_of(self._database))

    def close(self) -> None:
        """Give the database to the next server; this one cannot be used any more."""
        self._http.close()
        placement_app.give_back(self._database)
        self._database = None

    @contextlib.contextmanager
    def _serving(self) -> Any:
        with placement_app.serving_from(self._database), placement_app.capped(self.max_version):
            yield
