"""The real keystone as a process of its own, for tests of authentication, catalog and tokens."""

import base64
import functools
import os
import time
from pathlib import Path
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from tests.support.child import Child
from tests.support.ini import Config, Value, write_config

PASSWORD = "a $ecret % of the tests"
"""Awkward on purpose: it must pass unharmed through configuration files."""
REGION = "RegionOne"
PROJECT = "service"
DEFAULT_DOMAIN = "default"
AGENT = "agent"
NO_SERVICE = "noservice"
NO_ROLE = "norole"
PLACEMENT = "placement"
USERS = {AGENT: ("service",), NO_SERVICE: ("admin",), NO_ROLE: (), PLACEMENT: ("admin", "service")}
"""Users and their roles in the project. ``agent`` may do all the agent does, ``noservice`` may not reshape."""


class Keystone:
    """SQLite, fernet tokens, one region. Port and database stay over restarts."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self._keys = folder / "keys"
        self._database = folder / "keystone.sqlite"
        self._config = write_config(
            folder / "keystone.conf",
            {
                "DEFAULT": {"log_file": folder / "keystone.log"},
                "database": {
                    "connection": f"sqlite:///{self._database}",
                    "sqlite_synchronous": False,
                },
                "token": {"provider": "fernet", "caching": False, "cache_on_issue": False},
                "fernet_tokens": {"key_repository": self._keys},
                "fernet_receipts": {"key_repository": self._keys},
                "credential": {"key_repository": self._keys},
                # Everything but tokens and what revokes them, because a request asks for some hundred rows.
                "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
                "revoke": {"caching": False},
                "identity": {"password_hash_rounds": 4},
            },
        )
        self._child = Child("tests.support.serve_keystone", folder / "keystone.output")
        self._ids: dict[str, str] = {}
        self._disabled: dict[str, float] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v3"

    @property
    def running(self) -> bool:
        return self._child.running

    def start(self) -> None:
        """Serve, on the port of the last time; the first start makes the database, users and the
        placement service.
        """
        first = self.port == 0
        if first:
            self.invalidate_tokens()
        options = {
            "config_file": str(self._config),
            "database": str(self._database),
            "password": PASSWORD,
            "port": self.port,
            "threads": 4,
        }
        self.port = self._child.start(options)
        if first:
            self._populate()

    def stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        """End the process at once."""
        self._child.kill()

    def suspend(self) -> None:
        """Take connections but answer nothing, until ``resume``."""
        self._child.suspend()

    def resume(self) -> None:
        self._child.resume()

    # --- for clients ------------------------------------------------------------------------------

    def credentials(self, user: str = AGENT) -> dict[str, Value]:
        """The options of keystoneauth's password plugin, as in ``[placement]`` or
        ``[keystone_authtoken]``.
        """
        return {
            "auth_type": "password",
            "auth_url": self.url,
            "username": user,
            "password": PASSWORD,
            "project_name": PROJECT,
            "user_domain_id": DEFAULT_DOMAIN,
            "project_domain_id": DEFAULT_DOMAIN,
        }

    def session(self, user: str = AGENT) -> Session:
        options: dict[str, Any] = self.credentials(user)
        del options["auth_type"]
        return Session(auth=v3.Password(**options))

    def for_placement(self) -> Config:
        """What a Placement that asks this keystone must have in its configuration; it asks about
        every token anew.
        """
        return {
            "keystone_authtoken": {
                **self.credentials(PLACEMENT),
                "token_cache_time": -1,
                "http_request_max_retries": 0,
            }
        }

    # --- what can go wrong ------------------------------------------------------------------------

    def register_placement(self, url: str, region: str = REGION, interface: str = "public") -> None:
        """Put an endpoint of placement into the catalog, in place of any other."""
        self.unregister_placement()
        endpoint = {
            "service_id": self._ids["service"],
            "interface": interface,
            "region_id": region,
            "url": url,
        }
        self._call("POST", "/endpoints", {"endpoint": endpoint})

    def unregister_placement(self) -> None:
        """Take placement's endpoints out of the catalog; tokens issued from now on do not have
        them.
        """
        for endpoint in self._call("GET", f"/endpoints?service_id={self._ids['service']}")[
            "endpoints"
        ]:
            self._call("DELETE", f"/endpoints/{endpoint['id']}")

    def restore(self, placement_url: str) -> None:
        """Undo what a test did to the catalog and the users."""
        self.register_placement(placement_url)
        for user in list(self._disabled):
            self.enable(user)

    def revoke(self, token: str) -> None:
        """Make one token worthless before its time."""
        self._admin.delete("/auth/tokens", headers={"X-Subject-Token": token})

    def invalidate_tokens(self) -> None:
        """Change the keys, so that every token ever issued is refused, as if it had expired."""
        self._keys.mkdir(mode=0o700, exist_ok=True)
        for name in ("0", "1"):
            key = self._keys / name
            key.write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
            key.chmod(0o600)

    def disable(self, user: str) -> None:
        """From now on the user gets no tokens, and those it has are refused."""
        self._set_enabled(user, enabled=False)
        self._disabled[user] = time.time()

    def enable(self, user: str) -> None:
        """Undo ``disable``."""
        # because a token of the second in which the user was disabled is refused for ever
        time.sleep(max(0.0, self._disabled.pop(user) + 1.05 - time.time()))
        self._set_enabled(user, enabled=True)

    def _set_enabled(self, user: str, *, enabled: bool) -> None:
        self._call("PATCH", f"/users/{self._ids[user]}", {"user": {"enabled": enabled}})

    def _populate(self) -> None:
        project = self._call(
            "POST", "/projects", {"project": {"name": PROJECT, "domain_id": DEFAULT_DOMAIN}}
        )["project"]["id"]
        roles = {role["name"]: role["id"] for role in self._call("GET", "/roles")["roles"]}
        for name, granted in USERS.items():
            user = self._call(
                "POST",
                "/users",
                {"user": {"name": name, "password": PASSWORD, "domain_id": DEFAULT_DOMAIN}},
            )
            self._ids[name] = user["user"]["id"]
            for role in granted:
                self._call(
                    "PUT", f"/projects/{project}/users/{self._ids[name]}/roles/{roles[role]}"
                )
        service = self._call(
            "POST", "/services", {"service": {"type": "placement", "name": "placement"}}
        )
        self._ids["service"] = service["service"]["id"]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        extra = {} if body is None else {"json": body}
        response = self._admin.request(path, method, **extra)
        return response.json() if response.content else None

    @functools.cached_property
    def _admin(self) -> Adapter:
        auth = v3.Password(
            self.url,
            username="admin",
            password=PASSWORD,
            project_name="admin",
            user_domain_id=DEFAULT_DOMAIN,
            project_domain_id=DEFAULT_DOMAIN,
        )
        return Adapter(Session(auth=auth), endpoint_override=self.url)
