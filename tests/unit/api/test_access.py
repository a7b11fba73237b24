"""Who may do what."""

import grp
import os
import pwd
import socket
from pathlib import Path

import pytest

from agent.api.access import Access, Peer, peer_of
from agent.api.problem import Forbidden
from agent.cli.command import Options, Override, Source
from agent.cli.configuration import load
from agent.errors import ConfigErrors

READERS, WRITERS = 501, 502


def peer(uid=1000, *groups):
    return Peer(1, uid, frozenset(groups))


@pytest.mark.parametrize(
    ("who", "reads", "writes"),
    [
        (peer(0), True, True),
        (peer(42), True, True),
        (peer(1000, READERS), True, False),
        (peer(1000, WRITERS), True, True),
        (peer(1000, 42), False, False),
    ],
)
def test_rights_follow_from_user_and_groups(who, reads, writes):
    access = Access(42, READERS, WRITERS)
    for method, may in (
        ("GET", reads),
        ("HEAD", reads),
        ("OPTIONS", reads),
        ("POST", writes),
        ("DELETE", writes),
        ("PATCH", writes),
        ("ANYTHING", writes),
    ):
        if may:
            access.check(who, method)
        else:
            with pytest.raises(Forbidden, match=f"user {who.uid} may not"):
                access.check(who, method)


def test_groups_that_are_not_set_let_nobody_in():
    with pytest.raises(Forbidden):
        Access(42).check(peer(1000, READERS, WRITERS), "GET")


def options(**given):
    return load(
        Options(
            sources=(Source(Path(os.devnull)),),
            overrides=tuple(Override("api", *one) for one in given.items()),
        ),
        {},
    )


def test_groups_are_named_or_numbered():
    name = grp.getgrgid(os.getegid()).gr_name
    assert Access.from_options(options(read_group=name, write_group="4711")) == Access(
        os.geteuid(), os.getegid(), 4711
    )
    assert Access.from_options(options()) == Access(os.geteuid(), None, None)


def test_all_groups_that_do_not_exist_are_told_at_once():
    with pytest.raises(ConfigErrors) as found:
        Access.from_options(
            options(group="nobody here", read_group="99999999999", write_group="-1")
        )
    assert [error.message.partition(" =")[0] for error in found.value.errors] == [
        "[api] group",
        "[api] read_group",
        "[api] write_group",
    ]


def test_a_peer_is_who_the_kernel_says():
    near, far = socket.socketpair()
    with near, far:
        found = peer_of(near)
    assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
    account = pwd.getpwuid(os.geteuid())
    assert found.groups == {
        os.getegid(),
        *os.getgroups(),
        *os.getgrouplist(account.pw_name, account.pw_gid),
    }


def test_who_accepts_a_connection_asks_no_directory_of_users(monkeypatch):
    """It may be far, and would keep everybody from connecting."""
    asked = []
    monkeypatch.setattr(os, "getgrouplist", lambda *account: asked.append(account) or [54_321])
    near, far = socket.socketpair()
    with near, far:
        found = peer_of(near)
        assert not asked
        assert 54_321 in found.groups
        assert found.groups
        assert len(asked) == 1
