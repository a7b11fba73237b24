"""Which part of an ironic the agent manages: a conductor group, a shard, both or all of it."""

from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from drivers.ironic.version import ApiVersion

LEAST = ApiVersion(1, 46)
WITH_SHARDS = ApiVersion(1, 82)


@dataclass(frozen=True, slots=True)
class Scope:
    """``group`` None: any conductor group; empty: the default one. ``shard`` None: any."""

    group: str | None = None
    shard: str | None = None

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """What [ironic] says."""
        group, shard = conf.ironic.conductor_group, conf.ironic.shard
        return cls(None if group is None else group.lower(), shard or None)

    @property
    def version(self) -> ApiVersion:
        """The API version with which ironic is asked."""
        return WITH_SHARDS if self.shard else LEAST

    @property
    def filters(self) -> dict[str, str]:
        """The same as a query."""
        given = {"conductor_group": self.group, "shard": self.shard}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def lease(self) -> str:
        """The name of the lease on this part."""
        parts = [f"{name}={value}" for name, value in self.filters.items()]
        return f"nodes of ironic with {' and '.join(parts)}" if parts else "all nodes of ironic"

    def check(self, highest: ApiVersion, url: str) -> None:
        """Refuse an API that would ignore a filter, because then the nodes of others would be managed too.

        :raises ConfigErrors: the API is too old.
        """
        errors = []
        if self.shard and highest < WITH_SHARDS:
            errors.append(_too_old(f"[ironic] shard = {self.shard}", WITH_SHARDS, highest, url))
        if self.group is not None and highest < LEAST:
            errors.append(_too_old(f"[ironic] conductor_group = {self.group}", LEAST, highest, url))
        if not errors and highest < LEAST:
            errors.append(_too_old("the driver ironic", LEAST, highest, url))
        if errors:
            raise ConfigErrors(errors)


def _too_old(what: str, needed: ApiVersion, highest: ApiVersion, url: str) -> ConfigError:
    return ConfigError(f"{what} needs an ironic API of {needed}, and {url} has no more than {highest}", "upgrade ironic, or remove the option")
