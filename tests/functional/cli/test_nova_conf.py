"""The configuration of a nova host, taken as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.cli.folder import all_of
from tests.functional.cli.refusals import contents, refused, the_only
from tests.support.http_placement import HttpPlacement
from tests.support.keystone import PASSWORD, Keystone
from tests.support.system import AgentHere

UUID = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"

NOVA_CONF = """\
# Ansible managed
[DEFAULT]
debug = true
use_syslog = False
log_dir = {folder}/log
log_file = nova-compute.log
log_rotation_type = none
default_log_levels = nova=DEBUG,keystoneauth=DEBUG,requests=DEBUG
state_path = {folder}/nova
instances_path = $state_path/instances
lock_path = $state_path/tmp
rootwrap_config = /etc/nova/rootwrap.conf
transport_url = rabbit://nova:s3cr3t@controller-1:5672,nova:s3cr3t@controller-2:5672//
my_ip = 192.0.2.11
host = compute-1
compute_driver = fake.MediumFakeDriver
cpu_allocation_ratio = 8.0
ram_allocation_ratio = 0.0
reserved_host_memory_mb = 2048
reserved_host_disk_mb = 1025
update_resources_interval = 120
resume_guests_state_on_host_boot = true
osapi_compute_workers = $not_an_option_of_anybody
vif_plugging_timeout = 300
service_down_time = 60
initial_cpu_allocation_ratio = 4.0
enabled = true

[api]
auth_strategy = keystone
[api_database]
connection = mysql+pymysql://nova_api:s3cr3t@controller/nova_api?charset=utf8
[barbican]
barbican_endpoint_type = internal
[cache]
backend = oslo_cache.memcache_pool
enabled = True
memcache_servers = controller-1:11211,controller-2:11211
[cinder]
auth_type = password
auth_url = http://controller:5000/v3
password = s3cr3t
catalog_info = volumev3:cinderv3:internalURL
[compute]
cpu_shared_set = 0-3,^2
cpu_dedicated_set = 4-9
max_disk_devices_to_attach = 26
resource_provider_association_refresh = 300
provider_config_location = /etc/nova/provider_config/
[conductor]
workers = 5
[database]
# It is nova's; the agent's store is elsewhere.
connection = mysql+pymysql://nova:s3cr3t@controller/nova?charset=utf8
max_pool_size = 50
[devices]
enabled_mdev_types = nvidia-35
[glance]
api_servers = http://controller:9292
[keystone_authtoken]
auth_type = password
password = s3cr3t
memcached_servers = controller-1:11211
[libvirt]
virt_type = kvm
cpu_mode = host-model
images_type = rbd
images_rbd_pool = vms
images_rbd_ceph_conf = /etc/ceph/ceph.conf
live_migration_uri = "qemu+tls://%s/system"
disk_cachemodes = file=directsync,block=none
[neutron]
auth_type = password
metadata_proxy_shared_secret = s3cr3t
physnets = physnet1
[neutron_physnet_physnet1]
numa_nodes = 0
[notifications]
notify_on_state_change = vm_and_task_state
[oslo_concurrency]
lock_path = /var/lib/nova/tmp
[oslo_messaging_rabbit]
heartbeat_in_pthread = False
rabbit_quorum_queue = true
[oslo_policy]
policy_file = /etc/nova/policy.yaml
[pci]
device_spec = {{"vendor_id": "8086", "product_id": "10ca", "physical_network": "physnet1"}}
device_spec = {{"address": "0000:06:*", "resource_class": "CUSTOM_GPU"}}
alias = {{"name": "gpu", "vendor_id": "10de", "product_id": "1db4", "device_type": "type-PCI"}}
report_in_placement = true
[placement]
{placement}
[scheduler]
workers = 5
[service_user]
send_service_user_token = true
[upgrade_levels]
compute = auto
[vnc]
server_listen = $my_ip
novncproxy_base_url = http://192.0.2.1:6080/vnc_auto.html
[workarounds]
reserve_disk_resource_for_image_cache = true
"""


@pytest.fixture
def nova_host(keystone: Keystone, tmp_path: Path) -> Callable[[], AgentHere]:
    """An agent given a nova.conf, and a folder for its store."""

    def make() -> AgentHere:
        agent = AgentHere(tmp_path / "agent")
        options = {
            **keystone.credentials(),
            "region_name": "RegionOne",
            "valid_interfaces": "internal,public",
        }
        options["password"] = PASSWORD.replace("$", "$$")
        placement = "\n".join(f"{name} = {value}" for name, value in options.items())
        agent.config_file = agent.folder / "nova.conf"
        agent.config_file.write_text(NOVA_CONF.format(folder=agent.folder, placement=placement))
        agent.config_file.chmod(0o640)
        (agent.folder / "nova").mkdir()
        (agent.folder / "nova" / "compute_id").write_text(f"{UUID}\n")
        return agent

    return make


def test_it_is_right(nova_host: Callable[[], AgentHere]) -> None:
    agent = nova_host()
    before = all_of(agent.folder)
    checked = agent.run("config", "check")
    assert (checked.code, checked.stdout) == (0, f"nothing wrong in {agent.config_file}\n")
    assert checked.stderr == ""
    assert all_of(agent.folder) == before


def test_it_answers_what_would_change_here_and_then_changes_it(
    nova_host: Callable[[], AgentHere], keystone_placement: HttpPlacement
) -> None:
    agent = nova_host()
    store = ("--store-path", str(agent.store))
    before = all_of(agent.folder)
    dry = agent.run("--once", "--dry-run", "--format", "json", *store)
    assert (dry.code, dry.stderr) == (0, "")
    assert all_of(agent.folder) == before
    done = agent.run("--once", "--format", "json", *store)
    assert (done.code, done.stderr) == (0, "")
    told, did = (one.json["nodes"][0]["operations"] for one in (dry, done))
    assert [{**one, "status": ""} for one in told] == [{**one, "status": ""} for one in did]
    (uuid, node), *_ = keystone_placement.dump()["providers"].items()
    assert (uuid, node["name"]) == (UUID, "compute-1")
    # As nova.conf says: its CPU sets, ratios and reserved amounts.
    assert {
        name: (record["total"], record["reserved"], record["allocation_ratio"])
        for name, record in node["inventories"].items()
    } == {
        "VCPU": (3, 0, 8.0),
        "PCPU": (6, 0, 1.0),
        "MEMORY_MB": (8192, 2048, 1.0),
        "DISK_GB": (1028, 2, 1.0),
    }
    # Its log stays nova's, and so does the rest of its state.
    assert not (agent.folder / "log").exists()
    assert contents(agent.folder / "nova") == {"compute_id": f"{UUID}\n".encode()}
    assert (agent.store / "compute_id").read_text() == f"{UUID}\n"


def test_an_option_of_ours_in_it_is_still_checked(nova_host: Callable[[], AgentHere]) -> None:
    agent = nova_host()
    text = agent.config_file.read_text().replace(
        "reserved_host_memory_mb = 2048", "reserved_host_memory_mb = 2 GB"
    )
    agent.config_file.write_text(text)
    problem = the_only(refused(agent, None, "--store-path", str(agent.store)))
    line = text[: text.index("2 GB")].count("\n") + 1
    assert problem["message"] == (
        f"{agent.config_file}:{line}: [DEFAULT] reserved_host_memory_mb = 2 GB: not a whole "
        "number of at least 0"
    )
    assert PASSWORD not in str(problem)


@pytest.mark.parametrize(("name", "section"), [("nova.conf", "api"), ("site.conf", "vnc")])
def test_with_a_configuration_of_novas_a_new_node_is_flat_and_one_that_has_a_layout_keeps_it(
    agent: AgentHere, http_placement: HttpPlacement, name: str, section: str
) -> None:
    novas = agent.folder / name
    novas.write_text(f"[{section}]\n", encoding="utf-8")

    def providers(host: str, *arguments: str) -> int:
        store = ("--store-path", str(agent.folder / host))
        numa = ("--compute_driver", "fake.numa", "--host", host, *store)
        result = agent.run("--once", *numa, *arguments, "--format", "json")
        assert result.code == 0, result
        return len(result.json["nodes"][0]["tree"])

    assert providers("new-novas", "--config-file", str(novas)) == 1
    assert providers("new-novas") == 1
    nested = providers("new-own")
    assert nested > 1
    assert providers("new-own", "--config-file", str(novas)) == nested
