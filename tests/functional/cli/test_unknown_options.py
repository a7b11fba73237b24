"""A typo in a configuration is told: by the check, at every start and at a reload; and the check
tells everything else that is wrong beside it.
"""

import shlex
import sys
from pathlib import Path

import pytest

from tests.functional.test_daemon_claims import Host
from tests.support.system import AgentHere

TYPOS = """\
[DEFAULT]
compute_driver = fake
host = node-a
state_path = /nonexistent
my_ipp = 192.0.2.1
max_in_flight = 3
log-dir = /var/log
notify_nobody_of_this_at_all = 1
[default]
debug = true
[placement]
backend = embedded
max_in_fligth = 8
[placment]
max_in_flight = 8
[entirely_elsewhere]
x = 1
[database]
connection = sqlite://
[neutron_physnet_blue]
numa_nodes = 0
[mdev_nvidia-35]
max_instances = 4
[oslo_concurrency]
lock_path = /tmp
"""
# Deprecated names, other sections' and the log's options, and those of an authentication plugin.
RIGHT = """\
[DEFAULT]
compute_driver = fake
host = node-a
state_path = /nonexistent
logfile = nova.log
default_log_levels = amqp=WARN
[devices]
enabled_vgpu_types = nvidia-35
[vgpu_nvidia-35]
device_addresses = 0000:84:00.0
[neutron]
physnets = blue
[neutron_physnet_blue]
numa_nodes = 0
[creds]
auth_type = v3password
auth_url = http://127.0.0.1:1/v3
username = placement
user-name = placement
password = p4ss
project_name = service
project_domain_name = Default
user_domain_name = Default
[placement]
auth_section = creds
region_name = RegionOne
valid_interfaces = internal
"""


@pytest.fixture
def agent(tmp_path):
    return AgentHere(tmp_path / "agent")


def written(agent, text, name="agent.conf"):
    agent.config_file = agent.folder / name
    agent.config_file.write_text(
        f"{text}[store]\npath = {agent.store}\n[api]\nsocket = {agent.socket}\n"
    )
    agent.config_file.chmod(0o600)
    return agent


def unknown(agent):
    """What the check tells, without the file: line, section, option and what may have
    been meant.
    """
    checked = agent.run("config", "check", "--format", "json")
    rows = [one for one in checked.json["problems"] if one["code"] == "config.unknown"]
    assert {one["file"] for one in rows} <= {str(agent.config_file)}
    assert all(
        f"{agent.config_file}:{one['line']}: [{one['section']}]" in one["message"] and one["remedy"]
        for one in rows
    )
    assert sorted(checked.json["warnings"]) == sorted(
        f"{one['message']}: {one['remedy']}".replace("?:", "?") for one in rows
    )
    return {(one["line"], one["section"], one["option"]): one for one in rows}


def test_every_typo_in_the_agents_own_file_is_told_with_what_may_have_been_meant(agent):
    rows = unknown(written(agent, TYPOS))
    meant = {
        (5, "DEFAULT", "my_ipp"): "did you mean my_ip?",
        (6, "DEFAULT", "max_in_flight"): "that of [placement]?",
        (7, "DEFAULT", "log-dir"): "did you mean log_dir?",
        (8, "DEFAULT", "notify_nobody_of_this_at_all"): "no such option",
        (9, "default", None): "did you mean [DEFAULT]?",
        (13, "placement", "max_in_fligth"): "did you mean max_in_flight?",
        (14, "placment", None): "did you mean [placement]?",
        (16, "entirely_elsewhere", None): "no such section",
        (18, "database", None): "[store] connection",
        (20, "neutron_physnet_blue", None): "add blue to [neutron] physnets",
        (22, "mdev_nvidia-35", None): "add nvidia-35 to [devices] enabled_mdev_types",
    }
    assert rows.keys() == meant.keys()
    for place, text in meant.items():
        assert text in f"{rows[place]['message']}: {rows[place]['remedy']}"
    said = agent.run("config", "check")
    assert said.code == 0
    assert said.stdout.count("warning: ") == len(meant)


def test_what_is_read_is_not_called_unknown(agent):
    assert unknown(written(agent, RIGHT)) == {}


NOVAS = """\
[DEFAULT]
compute_driver = fake
host = node-a
state_path = /nonexistent
transport_url = rabbit://
rpc_response_timeout = 180
resume_guests_state_on_host_boot = true
reserved_host_memory = 4096
reserved_host_memory_mbs = 4096
osapi_compute_workers = 4
report_interval = 10
config_drive_format = iso9660
my_block_storage_ip = 192.0.2.1
[libvirt]
images_rbd_glance_store_name = x
swtpm_user = tss
num_pcie_ports = 20
rbd_secret_uuid = 0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c
imges_type = rbd
[vnc]
enabled = true
[placement]
backend = embedded
interface = internal
[placemnet]
region_name = RegionOne
[workarounds]
never_download_image_if_on_rbd = true
"""


def test_in_a_file_of_novas_only_near_misses_are_told(agent):
    assert list(unknown(written(agent, NOVAS))) == [
        (8, "DEFAULT", "reserved_host_memory"),
        (9, "DEFAULT", "reserved_host_memory_mbs"),
        (19, "libvirt", "imges_type"),
        (25, "placemnet", None),
    ]


def test_every_run_warns_of_it_and_so_does_one_that_fails(agent):
    written(
        agent,
        (
            "[DEFAULT]\ncompute_driver = fake.file\nhost = node-a\n[fake]\nhots_file = "
            "/nonexistent\n[driver_of_somebody]\nx = 1\n"
        ),
    )
    done = agent.run("--once", "--dry-run")
    assert done.code == 1
    (line,) = [line for line in done.stderr.splitlines() if "hots_file" in line]
    # Not with the run's error behind it.
    assert line.endswith(
        "[fake] hots_file: there is no such option: did you mean host_file? write it so, or remove it"
    )
    # Nobody knows what the driver would have read.
    assert "driver_of_somebody" not in done.stderr


def test_the_daemon_warns_of_it_at_its_start_and_at_a_reload(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url)
    file = host.command.config_file
    file.write_text(file.read_text() + "[placment]\nx = 1\n")
    with host.service.running(OS_TRACKR__X="1") as service:
        host.answers(host.client.health)
        assert service.logged("[placement]?").count("did you mean [placement]?") == 1
        told = (
            "environment variable OS_TRACKR__X: there is no such section: did you mean "
            "OS_TRACKER__X?"
        )
        assert service.logged(told).count(told) == 1
        file.write_text(file.read_text() + "[trackr]\n")
        host.client.reload()
        assert service.logged("[tracker]?").count("did you mean [tracker]?") == 1


# What oslo.config would read, what it does not, and what others read.
ENVIRONMENT = {
    "OS_PLACEMENT__MAX_IN_FLIGTH": (
        "there is no such option: did you mean OS_PLACEMENT__MAX_IN_FLIGHT?"
    ),
    "OS_PLACMENT__MAX_IN_FLIGHT": (
        "there is no such section: did you mean OS_PLACEMENT__MAX_IN_FLIGHT?"
    ),
    "OS_PLACMENT__MAX_IN_FLIGTH": (
        "there is no such section: did you mean OS_PLACEMENT__MAX_IN_FLIGHT?"
    ),
    "OS_Placement__max_in_flight": (
        "there is no such option: did you mean OS_PLACEMENT__MAX_IN_FLIGHT?"
    ),
    "OS_DEFAULT__MY_IPP": "there is no such option: did you mean OS_DEFAULT__MY_IP?",
    "OS_STORE__NOTHING_OF_THE_KIND": "there is no such option",
    # A deprecated name counts in files only.
    "OS_DEFAULT__LOGFILE": "there is no such option: did you mean OS_DEFAULT__LOG_FILE?",
}
NOT_OURS = {
    "OS_PLACEMENT__MAX_ANSWER": "128",
    "OS_DEFAULT__MY_IP": "192.0.2.1",
    "OS_PLACEMENT__USERNAME": "u",
    "OS_USERNAME": "u",
    "OS_AUTH_URL": "http://127.0.0.1:1/",
    "OS_PLACEMENT_API_VERSION": "1.39",
    "OS_CLOUD": "c",
    "OS_KEYSTONE_AUTHTOKEN__PASSWORD": "p",
    "OS_DATABASE__CONNECTION": "sqlite://",
    "OS__X": "1",
    "OS_VNC__ENABLED": "1",
    "OS_OSLO_CONCURRENCY__LOCK_PATH": "/tmp",
    "PLACMENT__X": "1",
    "OS_GLANCE__ENDPOINT_OVERRIDE": "http://127.0.0.1:1/",
}
ORDINARY = (
    "[DEFAULT]\ncompute_driver = fake\nhost = node-a\nstate_path = "
    "/nonexistent\n[placement]\nbackend = embedded\n"
)


def test_a_typo_in_a_variable_of_the_environment_is_told_by_the_check_and_by_every_run(agent):
    written(agent, ORDINARY)
    environment = NOT_OURS | dict.fromkeys(ENVIRONMENT, "s3cret")
    checked = agent.run("config", "check", "--format", "json", env=environment)
    told = {
        one["message"].split(":")[0].removeprefix("environment variable "): one
        for one in checked.json["problems"]
    }
    assert told.keys() == ENVIRONMENT.keys()
    for name, what in ENVIRONMENT.items():
        section, _, option = name.lower().removeprefix("os_").partition("__")
        assert told[name]["message"] == f"environment variable {name}: {what}"
        assert told[name]["remedy"]
        where = (told[name]["severity"], told[name]["code"], told[name]["file"], told[name]["line"])
        assert where == ("warning", "config.unknown", None, None)
        assert (told[name]["section"].lower(), told[name]["option"]) == (section, option)
    shown = agent.run("config", "check", env=environment)
    assert (shown.code, shown.stdout.count("warning: environment variable OS_")) == (
        0,
        len(ENVIRONMENT),
    )
    done = agent.run("--once", "--dry-run", env=environment)
    assert [
        f"environment variable {name}: {what}" in done.stderr for name, what in ENVIRONMENT.items()
    ] == [True] * len(ENVIRONMENT)
    assert "s3cret" not in checked.stdout + shown.stdout + done.stderr


def test_beside_a_file_of_novas_only_near_misses_in_the_environment_are_told(agent):
    written(agent, NOVAS, "nova.conf")
    told = agent.run(
        "config",
        "check",
        "--format",
        "json",
        env=dict.fromkeys(ENVIRONMENT, "1") | {"OS_LIBVIRT__SWTPM_USER": "tss"},
    ).json["warnings"]
    named = [
        one.split(":")[0].removeprefix("environment variable ")
        for one in told
        if one.startswith("environment variable ")
    ]
    assert named == sorted(set(ENVIRONMENT) - {"OS_STORE__NOTHING_OF_THE_KIND"})


EVERYTHING = """\
[DEFAULT]
compute_driver = fake.file
host = node-a
state_path = /nonexistent
a line of nonsense
update_resources_interval = often
log_config_append = /nonexistent/logging.conf
[compute]
cpu_shared_set = 4-1
provider_config_location = {folder}/providers
monitors = nobody
workers = 0
[fake]
host_file = {folder}/host.yaml
[pci]
device_spec = {{"vendor_id": "nonsense"}}
device_spec = {{"address": 3, "product_id": "1572"
alias = {{"name": "gpu"}}
[placement]
auth_type = no-such-plugin
auth_url = http://127.0.0.1:1/
cafile = /nonexistent/ca.pem
max_in_fligth = 8
[api]
read_group = no-such-group
[store]
connection = nonsense
path = {folder}/store-that-is-a-file
"""


def test_the_check_tells_errors_of_every_kind_at_once_each_with_its_place(agent):
    (agent.folder / "providers").mkdir(parents=True)
    (agent.folder / "providers" / "a.yaml").write_text(
        "meta: {schema_version: '1.0'}\nproviders: [{}]\n"
    )
    (agent.folder / "host.yaml").write_text("cpu:\n  online: 0-x\nmemry_mib: 3\n")
    (agent.folder / "store-that-is-a-file").touch()
    agent.config_file.write_text(EVERYTHING.format(folder=agent.folder))
    agent.config_file.chmod(0o600)
    checked = agent.run("config", "check", "--format", "json")
    assert checked.code == 1
    rows = {
        (Path(one["file"] or "-").name, one["line"], one["section"], one["option"]): one
        for one in checked.json["problems"]
    }
    assert all(one["message"] and one["remedy"] for one in rows.values())
    assert rows.keys() == {
        ("agent.conf", 5, None, None),
        ("agent.conf", 6, "DEFAULT", "update_resources_interval"),
        ("agent.conf", 7, "DEFAULT", "log_config_append"),
        ("agent.conf", 9, "compute", "cpu_shared_set"),
        ("a.yaml", 2, None, None),
        ("agent.conf", 11, "compute", "monitors"),
        ("agent.conf", 12, "compute", "workers"),
        ("host.yaml", 2, None, None),
        ("host.yaml", 3, None, None),
        ("agent.conf", 16, "pci", "device_spec"),
        ("agent.conf", 17, "pci", "device_spec"),
        ("agent.conf", 18, "pci", "alias"),
        ("agent.conf", 20, "placement", "auth_type"),
        ("agent.conf", 22, "placement", "cafile"),
        ("agent.conf", 23, "placement", "max_in_fligth"),
        ("agent.conf", 25, "api", "read_group"),
        ("agent.conf", 27, "store", "connection"),
        ("agent.conf", 28, "store", "path"),
    }
    errors = [one for one in checked.json["problems"] if one["severity"] == "error"]
    assert checked.json["errors"] == [
        {key: one[key] for key in ("code", "message", "remedy")} for one in errors
    ]
    text = agent.run("config", "check")
    assert text.code == 1
    assert all(one["message"] in text.stderr and one["remedy"] in text.stderr for one in errors)
    assert "did you mean max_in_flight?" in text.stdout
    assert f"  at {agent.config_file}:9\n" in text.stderr


def test_a_driver_without_its_package_is_told_with_its_place_and_what_works_at_once(
    agent, monkeypatch
):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    agent.config_file.write_text(
        f"[DEFAULT]\ncompute_driver = libvirt\n[store]\npath = {agent.folder}/store\n"
    )
    for words in (["config", "check"], ["--once"]):
        told = agent.run(*words)
        assert told.code == 1
        assert f"at {agent.config_file}:2" in told.stderr, told
        assert f"{sys.executable} -m pip install 'libvirt-python" in told.stderr
    (line,) = [line for line in told.stderr.splitlines() if "fake.numa" in line]
    assert agent.run(*shlex.split(line)[3:]).code == 0
    given = agent.run("--once", "--compute_driver", "libvirt")
    assert "libvirt-python" in given.stderr
    assert f"at {agent.config_file}" not in given.stderr
