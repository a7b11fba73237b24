"""Access to the local API: the peer of a connection, and its right to read or to write."""

import errno
import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from functools import cached_property

from oslo_config import cfg

from agent.api.problem import Forbidden
from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.names import printable

PEER = "compute_node_agent.peer"
"""The key of the WSGI environment under which the server puts the peer."""
# struct ucred: pid, uid, gid. The ids are unsigned.
_CREDENTIALS = struct.Struct("=iII")
_GROUP = struct.Struct("=I")
SO_PEERGROUPS = 59
# In bytes; Python's getsockopt() takes no larger buffer.
LONGEST_ANSWER = 1024


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a connection, as it was when it connected."""

    pid: int
    uid: int
    own_groups: frozenset[int]
    """The groups that the process had."""
    gid: int | None = None
    """The process's group; None: the groups of its account are not looked up."""

    @cached_property
    def groups(self) -> frozenset[int]:
        """The groups that the process had, and those of its user's account."""
        # Looked up on first use, because a directory of users may be slow, and the thread that
        # accepts connections must not wait for it.
        return (
            self.own_groups
            if self.gid is None
            else self.own_groups.union(_of_account(self.uid, self.gid))
        )

    def __str__(self) -> str:
        return f"uid {self.uid}, pid {self.pid}"


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer as the kernel knows it (SO_PEERCRED, SO_PEERGROUPS).

    :raises OSError: the kernel does not know it.
    """
    pid, uid, gid = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return Peer(pid, uid, frozenset({gid, *_of_process(connection)}), gid)


def _of_process(connection: socket.socket) -> list[int]:
    # Groups that a service manager gave the process are in no account.
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, LONGEST_ANSWER)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        # More groups than fit into the largest buffer; those of the account are looked up.
        return []
    return [gid for (gid,) in _GROUP.iter_unpack(found)]


def _of_account(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        # A process may run under a uid that has no account.
        return []


READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Access:
    """The rights over the API. Root and ``owner`` may do everything."""

    owner: int
    """The uid that the agent runs under."""
    readers: int | None = None
    """The group that may read; None for no group."""
    writers: int | None = None
    """The group that may read and write; None for no group."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> "Access":
        """Return the rights that ``[api]`` gives.

        :raises ConfigErrors: options name groups that do not exist.
        """
        errors: list[ConfigError] = []
        found: dict[str, int | None] = {}
        for option in ("group", "read_group", "write_group"):
            with gathering(errors):
                found[option] = group_id(conf, option)
        ConfigErrors.raise_if_any(errors)
        return cls(os.geteuid(), found["read_group"], found["write_group"])

    def check(self, peer: Peer, method: str) -> None:
        """Do nothing if the peer may send a request with this method.

        :raises Forbidden: the peer may not.
        """
        if peer.uid in (0, self.owner) or self.writers in peer.groups:
            return
        reads = method in READS
        if reads and self.readers in peer.groups:
            return
        option = "read_group or write_group" if reads else "write_group"
        raise Forbidden(
            f"user {peer.uid} may not {'read' if reads else 'write'}",
            f"be root, or a member of [api] {option}",
        )


def group_id(conf: cfg.ConfigOpts, option: str) -> int | None:
    """Return the gid of the group that an option of ``[api]`` names; None if it is not set.

    :raises ConfigError: there is no such group.
    """
    name = conf.api[option]
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError) as error:
        if name.isascii() and name.isdecimal() and int(name) < 2**32 - 1:
            return int(name)
        raise ConfigError(
            f"[api] {option} = {printable(name)}: there is no such group",
            "make the group (groupadd), or name another",
        ) from error
