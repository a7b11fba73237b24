"""The commands of the OpenStack client for the agent's account that a message names, carried out as an
administrator on a real keystone: what was lacking is there then.

``OPENSTACK_CLIENT`` names an ``openstack`` command; without it this is left out.
"""

import shlex
from pathlib import Path

import pytest

from tests.functional.cli.setups import merged, on
from tests.support.http_placement import HttpPlacement
from tests.support.keystone import AGENT, NO_ROLE, NO_SERVICE, PASSWORD, PROJECT, Keystone
from tests.support.shell import Shell, command_of, need_openstack
from tests.support.system import AgentHere

pytestmark = pytest.mark.long


@pytest.fixture
def agent(tmp_path: Path) -> AgentHere:
    return AgentHere(tmp_path / "agent")


def shell_of(agent: AgentHere, keystone: Keystone, user: str, project: str) -> Shell:
    """A shell whose ``openstack`` is that of a user."""
    shell = Shell(agent.folder / "programs", agent)
    account = {
        **keystone.credentials(user),
        "project_name": project,
        "identity_api_version": 3,
        "region_name": "RegionOne",
    }
    shell.has(
        "openstack",
        "unset OS_TOKEN OS_IDENTITY_ENDPOINT_OVERRIDE",
        *(f"export OS_{key.upper()}={shlex.quote(str(value))}" for key, value in account.items()),
        f'exec {need_openstack()} "$@"',
    )
    return shell


def configure(
    agent: AgentHere, keystone: Keystone, placement: HttpPlacement, user: str, **more: str
) -> None:
    account = {**on(placement)["placement"], **keystone.credentials(user), **more}
    account = {name: value for name, value in account.items() if name not in ("token", "endpoint")}
    options = merged(on(placement, "fake.small"))
    agent.configure({**options, "placement": account})


def test_the_role_that_an_account_lacks_is_given_by_the_command_of_the_check(
    agent: AgentHere, keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    configure(agent, keystone, keystone_placement, NO_SERVICE)

    def checked() -> tuple[str, str]:
        found = agent.run("takeover", "check", "--format", "json").json["checks"]
        (role,) = (one for one in found if one["check"] == "role")
        return role["verdict"], role["next"]

    verdict, command = checked()
    assert verdict == "warning"
    shell = shell_of(agent, keystone, "admin", "admin")
    command = command.replace("USER", NO_SERVICE).replace("PROJECT", PROJECT)
    shell.run(command)
    try:
        assert checked()[0] == "ok"
    finally:
        shell.run(command.replace("role add", "role remove"))


def test_the_roles_of_an_account_that_is_refused_are_listed_by_the_command_of_the_remedy(
    agent: AgentHere, keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    configure(agent, keystone, keystone_placement, NO_ROLE)
    (error,) = agent.run("--once", "--format", "json").json["errors"]
    command = command_of(error["remedy"], "openstack").partition("; ")[0]
    command = command.replace("PROJECT", PROJECT)
    shell = shell_of(agent, keystone, "admin", "admin")
    assert shell.run(command.replace("USER", NO_ROLE)).strip() == ""
    assert "service" in shell.run(command.replace("USER", AGENT))


def test_an_application_credential_that_is_refused_is_listed_by_the_command_of_the_remedy(
    agent: AgentHere, keystone: Keystone, keystone_placement: HttpPlacement
) -> None:
    shell = shell_of(agent, keystone, AGENT, PROJECT)
    created = "openstack application credential create -f value -c id mine --secret right"
    identity = shell.run(created).strip()
    try:
        options = merged(on(keystone_placement, "fake.small"))
        account = {
            "auth_type": "v3applicationcredential",
            "auth_url": keystone.url,
            "application_credential_id": identity,
            "application_credential_secret": PASSWORD,
        }
        agent.configure({**options, "placement": account})
        (error,) = agent.run("--once", "--format", "json").json["errors"]
        assert identity in shell.run(command_of(error["remedy"], "openstack"))
        account["application_credential_secret"] = "right"
        agent.configure({**options, "placement": account})
        assert agent.run("--once").code == 0
    finally:
        shell.run(f"openstack application credential delete {identity}")
