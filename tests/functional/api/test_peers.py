"""Who may do what: the user at the other end of the socket decides. Children of this test play the
other users.
"""

import json
import os
import socket
from dataclasses import dataclass

import pytest

from tests.support import backends
from tests.support.local_api import api_here

NOBODY = 65534
# Numbers that no account of this machine has.
VISITORS, READERS, WRITERS, STRANGERS = 54_301, 54_302, 54_303, 54_304

GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
POST = b"POST /v1/audits HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Heard:
    status: int
    code: str


@pytest.fixture(scope="module", autouse=True)
def _root():
    if os.geteuid() != 0:
        backends.missing("other users", backends.AS_ROOT, "only root can be somebody else")


def as_nobody(path, request, group, groups=()):
    """What a child hears that is nobody with these groups; the status is 0 if it cannot even
    connect.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b""
        try:
            os.setgroups(groups)
            os.setgid(group)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(path))
                connection.sendall(request)
                while part := connection.recv(65536):
                    answer += part
        except PermissionError:
            answer = b"HTTP/1.1 0 refused\r\n\r\n"
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    head, _, body = answer.partition(b"\r\n\r\n")
    return Heard(int(head.split()[1]), json.loads(body).get("code", "") if body else "")


@pytest.fixture(scope="module")
def path():
    """An API whose socket may be connected to by visitors, who may do nothing unless they are
    readers or writers too.
    """
    with api_here(group=str(VISITORS), read_group=str(READERS), write_group=str(WRITERS)) as api:
        yield api.path


def test_who_is_not_in_the_sockets_group_cannot_even_connect(path):
    assert as_nobody(path, GET, STRANGERS).status == 0


@pytest.mark.parametrize(
    "request_",
    [
        GET,
        POST,
        *(GET.replace(b"/healthz", path) for path in (b"/metrics", b"/readyz", b"/nowhere")),
    ],
)
def test_who_is_in_no_group_of_the_apis_may_do_nothing(path, request_):
    assert as_nobody(path, request_, VISITORS) == Heard(403, "access.forbidden")


def test_readers_may_look_and_not_touch(path):
    assert as_nobody(path, GET, VISITORS, [READERS]).status == 200
    assert as_nobody(path, POST, VISITORS, [READERS]) == Heard(403, "access.forbidden")
    assert as_nobody(
        path, b"DELETE /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", VISITORS, [READERS]
    ) == Heard(403, "access.forbidden")


def test_writers_may_do_everything(path):
    assert as_nobody(path, GET, VISITORS, [WRITERS]).status == 200
    assert as_nobody(path, POST, VISITORS, [WRITERS]).status == 202


def test_the_main_group_of_a_process_counts_like_the_others(path):
    assert as_nobody(path, POST, WRITERS, [VISITORS]).status == 202


def test_a_header_that_claims_to_be_somebody_changes_nothing(path):
    claiming = GET.replace(
        b"Host", b"X-Remote-Uid: 0\r\nX_REMOTE_UID: 0\r\nRemote-User: root\r\nHost"
    )
    assert as_nobody(path, claiming, VISITORS).status == 403


def test_without_groups_only_root_and_the_agent_itself_may():
    with api_here(group=str(VISITORS)) as api:
        assert as_nobody(api.path, GET, VISITORS) == Heard(403, "access.forbidden")
        assert api.call("GET", "/healthz").status == 200


def test_other_rights_count_from_the_next_request_on():
    from agent.api.access import Access

    with api_here(group=str(VISITORS)) as api:
        api.api.allow(Access(0, READERS, None))
        assert as_nobody(api.path, GET, VISITORS, [READERS]).status == 200
        api.api.allow(Access(NOBODY, None, None))
        assert as_nobody(api.path, POST, VISITORS).status == 202, "the agent's own user"
