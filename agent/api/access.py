"""Who may do what over the local API."""

import grp
import os
from dataclasses import dataclass

from oslo_config import cfg

from agent.api.errors import Forbidden
from agent.api.peer import Peer
from agent.conf.api import GROUP
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Access:
    """Root and ``owner`` may do everything. ``readers`` and ``writers`` are groups, None for nobody; who may write may read."""

    owner: int
    readers: int | None = None
    writers: int | None = None

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> "Access":
        """As ``[api]`` says.

        :raises ConfigErrors: it names groups that do not exist.
        """
        errors: list[ConfigError] = []
        found: dict[str, int | None] = {}
        for option in ("group", "read_group", "write_group"):
            try:
                found[option] = group_id(conf, option)
            except ConfigError as error:
                errors.append(error)
        if errors:
            raise ConfigErrors(errors)
        return cls(os.geteuid(), found["read_group"], found["write_group"])

    def check(self, peer: Peer, method: str) -> None:
        """Let the peer do it.

        :raises Forbidden: it may not.
        """
        if peer.uid in (0, self.owner) or self.writers in peer.groups:
            return
        reads = method in READS
        if reads and self.readers in peer.groups:
            return
        option = "read_group or write_group" if reads else "write_group"
        raise Forbidden(f"user {peer.uid} may not {'read' if reads else 'write'}", f"be root, or a member of [{GROUP}] {option}")


def group_id(conf: cfg.ConfigOpts, option: str) -> int | None:
    """The number of the group that an option names; None if it is not set.

    :raises ConfigError: there is no such group.
    """
    name = conf[GROUP][option]
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError) as error:
        if name.isascii() and name.isdecimal() and int(name) < 2**32 - 1:
            return int(name)
        raise ConfigError(f"[{GROUP}] {option} = {printable(name)}: there is no such group", "make the group (groupadd), or name another") from error
