"""Placement behind a real uWSGI with its defaults: a request has 4,096 bytes, and its HTTP socket
closes every connection after the answer without saying so.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import os_traits
import pytest
import yaml

from tests.support import backends
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PREFIX
from tests.support.service_manager import until
from tests.support.system import AgentCommand

LONGEST = 1500
"""Bytes of an address."""
TRAITS = [name for name in os_traits.get_traits() if not name.startswith("COMPUTE_")][:90]
UWSGI_PARAMS = """
    uwsgi_param QUERY_STRING $query_string; uwsgi_param REQUEST_METHOD $request_method;
    uwsgi_param CONTENT_TYPE $content_type; uwsgi_param CONTENT_LENGTH $content_length;
    uwsgi_param REQUEST_URI $request_uri; uwsgi_param PATH_INFO $document_uri;
    uwsgi_param DOCUMENT_ROOT $document_root; uwsgi_param SERVER_PROTOCOL $server_protocol;
    uwsgi_param REMOTE_ADDR $remote_addr; uwsgi_param SERVER_PORT $server_port;
    uwsgi_param SERVER_NAME $server_name;
"""


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[str]:
    """An nginx in front of uWSGI's socket ``upstream``, as its package has it; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    paths = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;"
        f"events {{}} http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port};"
        f"location / {{ uwsgi_pass {upstream}; {UWSGI_PARAMS} }} }} }}"
    )
    program = shutil.which("nginx") or backends.missing("nginx", "apt-get install nginx-light")
    server = subprocess.Popen([program, "-c", folder / "nginx.conf", "-p", folder])
    try:
        until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}{PREFIX}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def closing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPlacement]:
    """Placement behind uWSGI's HTTP socket; a socket for nginx is beside it."""
    backends.require("pyuwsgi", "placement.deploy")
    folder = tmp_path_factory.mktemp("closing")
    server = HttpPlacement(folder, uwsgi=["http-socket", f"--socket={folder}/for-nginx"])
    server.start()
    yield server
    server.kill()


def command(folder: Path, url: str, host: dict[str, Any]) -> AgentCommand:
    """A host described by ``host``, with Placement at ``url``."""
    (folder / "agent").mkdir()
    (folder / "host.yaml").write_text(yaml.safe_dump(host))
    return AgentCommand(
        folder / "agent",
        {
            "DEFAULT": {"host": "node-a", "compute_driver": "fake.file"},
            "fake": {"host_file": folder / "host.yaml"},
            "placement": {"auth_type": "admin_token", "endpoint": url, "token": "t" * 200},
        },
    )


def test_a_host_with_many_traits_gets_its_tree_through_nginx_and_uwsgi(
    closing: HttpPlacement, tmp_path: Path
) -> None:
    closing.reset()
    with nginx(tmp_path, closing.uwsgi[1].replace("--socket=", "unix:")) as url:
        result = command(tmp_path, url, {"traits": TRAITS}).run("--once")
    assert (result.code, result.stderr) == (0, ""), result
    (node,) = closing.dump()["providers"].values()
    assert {*node["traits"]} >= {*TRAITS}
    assert max(len(one.target) for one in closing.requests) < LONGEST


def test_a_new_tree_needs_one_run_where_the_server_closes_connections_without_a_word(
    closing: HttpPlacement, tmp_path: Path
) -> None:
    closing.reset()
    children = [
        {
            "name": f"$NODE_{number}",
            "inventories": {"PCPU": {"total": 4}},
            "traits": ["HW_NUMA_ROOT"],
        }
        for number in range(8)
    ]
    root = {"name": "$NODE", "inventories": {"VCPU": {"total": 8}}}
    agent = command(tmp_path, closing.url, {"providers": [root, *children]})
    result = agent.run("--once")
    assert (result.code, result.stderr) == (0, ""), result
    assert len(closing.dump()["providers"]) == 9
    closing.clear()
    result = agent.run("--once", "--detailed-exitcode")
    assert (result.code, closing.lines()[1:]) == (0, [])


def test_a_request_that_is_too_long_is_told_as_that_and_answered_with_a_larger_buffer(
    closing: HttpPlacement, tmp_path: Path
) -> None:
    closing.reset()
    agent = command(tmp_path, closing.url, {})
    query = ["explain", "--anywhere", "resources=VCPU:1", f"required={','.join(TRAITS)}"]
    result = agent.run(*query)
    assert result.code == 1
    assert "answers short requests, but none with an address of 1" in result.stderr
    assert "buffer-size of uWSGI" in result.stderr
    closing.kill()
    closing.uwsgi = [*closing.uwsgi, "--buffer-size=32768"]
    closing.start()
    result = agent.run(*query)
    assert (result.code, result.stderr) == (2, "")
