"""keystone and a Placement that asks it."""

import pytest
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from tests.support.http_placement import HttpPlacement
from tests.support.keystone import AGENT, NO_SERVICE, REGION, Keystone

pytestmark = pytest.mark.long


def client_of(keystone: Keystone, user: str = AGENT, region: str = REGION) -> Adapter:
    return Adapter(
        keystone.session(user),
        service_type="placement",
        interface="public",
        region_name=region,
        default_microversion="1.39",
        raise_exc=False,
    )


def reshape(keystone: Keystone, server: HttpPlacement, user: str) -> int:
    provider = server.other.create_provider(f"node of {user}")
    body = {
        "inventories": {
            provider: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
        },
        "allocations": {},
    }
    return int(client_of(keystone, user).post("/reshaper", json=body).status_code)


def test_the_catalog_leads_to_placement(
    keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    client = client_of(keystone)
    assert client.get_endpoint() == keystone_placement.url
    assert client.get("/resource_providers").json() == {"resource_providers": []}
    assert keystone_placement.lines() == ["GET /resource_providers -> 200"]


def test_only_users_with_the_service_role_reshape(
    keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    assert reshape(keystone, keystone_placement, AGENT) == 204
    assert reshape(keystone, keystone_placement, NO_SERVICE) == 403


@pytest.mark.parametrize("way", ["revoked", "invalidated"])
def test_a_worthless_token_is_refused_once_and_renewed(
    keystone: Keystone, keystone_placement: HttpPlacement, way: str
) -> None:
    client = client_of(keystone)
    assert client.get("/resource_providers").status_code == 200
    if way == "revoked":
        keystone.revoke(client.get_token())
    else:
        keystone.invalidate_tokens()
    keystone_placement.clear()
    assert client.get("/resource_providers").status_code == 200
    assert keystone_placement.lines() == [
        "GET /resource_providers -> 401",
        "GET /resource_providers -> 200",
    ]


def test_a_disabled_user_is_refused_until_enabled(
    keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    keystone.disable(AGENT)
    with pytest.raises(exceptions.Unauthorized):
        client_of(keystone).get("/resource_providers")
    keystone.enable(AGENT)
    assert client_of(keystone).get("/resource_providers").status_code == 200


def test_the_catalog_may_lack_the_endpoint_or_have_it_elsewhere(
    keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    keystone.unregister_placement()
    with pytest.raises(exceptions.EndpointNotFound):
        client_of(keystone).get("/")
    keystone.register_placement(keystone_placement.url)
    with pytest.raises(exceptions.EndpointNotFound):
        client_of(keystone, region="Elsewhere").get("/")
    assert client_of(keystone).get("/").status_code == 200


def test_a_wrong_password_is_unauthorized(keystone: Keystone) -> None:
    session = keystone.session()
    session.auth.auth_methods[0].password = "wrong"
    with pytest.raises(exceptions.Unauthorized):
        session.get_token()


def test_a_stopped_keystone_refuses_and_comes_back(
    keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    keystone.kill()
    assert not keystone.running
    with pytest.raises(exceptions.ConnectFailure):
        client_of(keystone).get("/resource_providers")
    keystone.start()
    assert client_of(keystone).get("/resource_providers").status_code == 200


def test_a_suspended_keystone_answers_late(keystone: Keystone) -> None:
    session = keystone.session()
    keystone.suspend()
    with pytest.raises(exceptions.ConnectTimeout):
        session.get(f"{keystone.url}/", authenticated=False, timeout=0.2)
    keystone.resume()
    assert session.get_token()
