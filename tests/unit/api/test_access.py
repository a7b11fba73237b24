"""Who may do what."""

import grp
import os
import socket
from pathlib import Path

import pytest

from agent.api.access import Access, peer_of
from agent.cli.command import Options, Override, Source
from agent.cli.configuration import load
from agent.errors import ConfigErrors

READERS, WRITERS = 501, 502


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
