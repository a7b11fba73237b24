"""The fault-injecting proxy, apart from the faults themselves."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from tests.support import faults
from tests.support.http_placement import HttpPlacement
from tests.support.placement import noauth_session
from tests.support.proxy import FaultProxy


def client_of(proxy: FaultProxy) -> Adapter:
    return Adapter(
        noauth_session(proxy.url, "admin,service"),
        service_type="placement",
        default_microversion="1.39",
        raise_exc=False,
    )


def test_answers_are_passed_on_unchanged(proxy: FaultProxy, http_placement: HttpPlacement) -> None:
    provider = http_placement.other.create_provider("Knoten 7/a&b")
    path = "/resource_providers?name=Knoten+7%2Fa%26b"
    through, direct = client_of(proxy).get(path), http_placement.adapter(version="1.39").get(path)
    assert through.json() == direct.json()
    assert through.json()["resource_providers"][0]["uuid"] == provider
    volatile = {"x-openstack-request-id", "last-modified", "date"}
    assert {n.lower(): v for n, v in through.headers.items() if n.lower() not in volatile} == {
        n.lower(): v for n, v in direct.headers.items() if n.lower() not in volatile
    }


def test_proxy_and_server_log_the_same(proxy: FaultProxy, http_placement: HttpPlacement) -> None:
    client = client_of(proxy)
    client.get("/")
    client.post(
        "/resource_providers", json={"name": "node"}, headers={"X-Openstack-Request-Id": "req-mine"}
    )
    client.get("/resource_providers?name=rack+7%2Fa")
    assert proxy.requests == http_placement.requests
    proxy.clear()
    assert proxy.requests == []


def test_connections_are_refused_while_the_proxy_is_down_and_not_after(proxy: FaultProxy) -> None:
    client = client_of(proxy)
    assert client.get("/").status_code == 200
    with proxy.down(), pytest.raises(exceptions.ConnectFailure) as raised:
        client.get("/")
    assert "Connection refused" in str(raised.value)
    assert client.get("/").status_code == 200
    assert proxy.count() == 2


def test_a_held_request_does_not_hold_others_nor_the_end(proxy: FaultProxy) -> None:
    proxy.faults.add(faults.read_timeout(), path="held")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(requests.get, f"{proxy.url}/held", timeout=30)
        deadline = time.monotonic() + 5
        while not proxy.requests:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client_of(proxy).get("/").status_code == 200
        proxy.stop()
        with pytest.raises(requests.exceptions.ConnectionError):
            held.result(60)


def test_the_connection_is_closed_when_placement_is_gone(
    proxy: FaultProxy, http_placement: HttpPlacement
) -> None:
    http_placement.kill()
    with pytest.raises(exceptions.ConnectFailure):
        client_of(proxy).get("/")
    http_placement.start()
    assert client_of(proxy).get("/").status_code == 200


def test_a_fault_that_a_proxy_cannot_play_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="refused cannot happen"):
        proxy.faults.add(faults.refused())
