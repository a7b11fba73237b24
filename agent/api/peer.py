"""Who is at the other end of a Unix socket."""

import errno
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from functools import cached_property

# struct ucred: pid, uid, gid. The ids are unsigned.
_CREDENTIALS = struct.Struct("=iII")
_GROUP = struct.Struct("=I")
SO_PEERGROUPS = 59
# In bytes; Python asks for no more.
LONGEST_ANSWER = 1024


@dataclass(frozen=True)
class Peer:
    """The process that connected, as it was then. ``own_groups``: those that it had."""

    pid: int
    uid: int
    own_groups: frozenset[int]
    gid: int | None = None

    @cached_property
    def groups(self) -> frozenset[int]:
        """Those that the process had, and those of its user's account."""
        # Looked up when somebody wants to know, because a directory of users may be far, and who accepts connections must not wait for it.
        return self.own_groups if self.gid is None else self.own_groups.union(_of_account(self.uid, self.gid))

    def __str__(self) -> str:
        return f"uid {self.uid}, pid {self.pid}"


def peer_of(connection: socket.socket) -> Peer:
    """The peer as the kernel knows it.

    :raises OSError: the kernel does not tell.
    """
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Peer(pid, uid, frozenset({gid, *_of_process(connection)}), gid)


def _of_process(connection: socket.socket) -> list[int]:
    # What a service manager gave the process stands in no account.
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, LONGEST_ANSWER)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        # More groups than Python can be told of; the account has them too.
        return []
    return [gid for (gid,) in _GROUP.iter_unpack(found)]


def _of_account(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        # A process may run under a number that has no account.
        return []
