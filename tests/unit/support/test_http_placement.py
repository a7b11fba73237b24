"""The Placement in a process of its own."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from keystoneauth1 import exceptions, loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy

pytestmark = pytest.mark.long


def test_requests_are_logged_by_the_server(http_placement: HttpPlacement) -> None:
    client = http_placement.adapter(version="1.39")
    provider = http_placement.other.create_provider("node")
    client.get("/", headers={"X-Openstack-Request-Id": "req-mine"})
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2}}}
    answer = client.put(f"/resource_providers/{provider}/inventories", json=body)
    root, put = http_placement.requests
    assert (root.path, root.request_id) == ("/", "req-mine")
    assert (put.method, put.path, put.version, put.body) == (
        "PUT",
        f"/resource_providers/{provider}/inventories",
        "1.39",
        body,
    )
    assert (put.status, put.server_request_id, put.reached) == (
        200,
        answer.headers["x-openstack-request-id"],
        True,
    )
    http_placement.clear()
    assert http_placement.count() == 0


def test_a_running_server_is_emptied(http_placement: HttpPlacement) -> None:
    http_placement.other.create_provider("node")
    http_placement.reset()
    assert http_placement.dump()["providers"] == {}
    assert http_placement.adapter(version="1.39").get("/resource_providers").json() == {
        "resource_providers": []
    }


def test_a_killed_server_refuses_and_comes_back_with_its_data(
    http_placement: HttpPlacement,
) -> None:
    provider = http_placement.other.create_provider("node")
    url = http_placement.url
    http_placement.kill()
    assert not http_placement.running
    with pytest.raises(exceptions.ConnectFailure):
        http_placement.adapter().get("/")
    assert list(http_placement.dump()["providers"]) == [provider]
    http_placement.start()
    assert http_placement.url == url
    assert http_placement.other.provider(provider)["name"] == "node"


def test_a_suspended_server_answers_late(http_placement: HttpPlacement) -> None:
    http_placement.suspend()
    with pytest.raises(exceptions.ConnectTimeout):
        http_placement.adapter().get("/", timeout=0.2)
    http_placement.resume()
    assert http_placement.adapter().get("/", timeout=60).status_code == 200


def test_an_older_database_is_restored_under_the_running_server(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    provider = http_placement.other.create_provider("node")
    http_placement.save(tmp_path / "backup")
    http_placement.other.set_inventory(provider, {"VCPU": 1})
    http_placement.restore(tmp_path / "backup")
    assert http_placement.other.generation(provider) == 0
    assert http_placement.other.inventory(provider) == {}


def test_several_clients_are_served_at_once(http_placement: HttpPlacement) -> None:
    with ThreadPoolExecutor(4) as pool:
        statuses = list(
            pool.map(
                lambda _: http_placement.adapter(version="1.39").get("/traits").status_code,
                range(8),
            )
        )
    assert statuses == [200] * 8
    assert http_placement.count("GET") == 8


@pytest.mark.parametrize(("service_role", "status"), [(True, 204), (False, 403)])
def test_credentials_for_a_configuration_file_have_the_service_role_or_not(
    http_placement: HttpPlacement, proxy: FaultProxy, service_role: bool, status: int
) -> None:
    options = http_placement.credentials(proxy.url, service_role=service_role)
    plugin = loading.get_plugin_loader(options.pop("auth_type")).load_from_options(**options)
    client = Adapter(
        Session(plugin), service_type="placement", default_microversion="1.39", raise_exc=False
    )
    provider = http_placement.other.create_provider("node")
    body = {
        "inventories": {
            provider: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
        },
        "allocations": {},
    }
    assert client.post("/reshaper", json=body).status_code == status
    assert proxy.count("POST") == 1


def test_an_older_server_says_so(tmp_path: Path) -> None:
    server = HttpPlacement(tmp_path, max_version="1.29")
    server.start()
    assert server.adapter().get("/").json()["versions"][0]["max_version"] == "1.29"
    assert server.adapter(version="1.30").get("/resource_providers").status_code == 406
    server.stop()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = HttpPlacement(tmp_path)
    (tmp_path / "placement.conf").unlink()
    with pytest.raises(AssertionError, match=r"did not start.*\n(.*\n)*.*placement\.conf"):
        server.start()
    assert not server.running


def test_a_server_ends_with_the_tests_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "from tests.support.http_placement import HttpPlacement\n"
        "server = HttpPlacement(pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=CHECKOUT, stdout=subprocess.PIPE, check=False
    )
    pid = int(parent.stdout)
    deadline = time.monotonic() + 10
    while _alive(pid):
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a zombie that nobody has waited for yet is dead too
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
