"""Plants the faults that an observer tells of into a real cloud, one after the other, and carries out
the remedies: ``SHARED=FOLDER python -m tests.nova.cloud_faults AGENT [FAULT ...]``.

``$SHARED/tools/peers/nova-cloud/up`` has started the cloud: two hosts, keystone, Placement, nova. The
Python is that of the cloud's control plane (``$VCTL``), ``AGENT`` the command of the agent that observes.
Prints, of each fault, what was told without and with nova's API and what the remedy did, as Markdown;
exits with 1 if something was not told, or a remedy did harm or did not end the fault.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TOOL = Path(os.environ["SHARED"]) / "tools" / "peers" / "nova-cloud"
sys.path.insert(0, str(TOOL))
from osclient import Cloud  # type: ignore[import-not-found]  # noqa: E402

HOSTS = HERE, THERE = "compute1", "compute2"
RABBIT = f"amqp://guest:guest@127.0.0.1:{os.environ.get('P_RMQ', 35672)}"
SMALL = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
COMMAND = re.compile(r"(?:openstack|nova-manage|virsh) ")
NOVAS_OWN = "nova-compute"


def shell(script: str, seconds: float = 180) -> str:
    """What a script prints that has the short names of the cloud's tool."""
    text = f". {shlex.quote(str(TOOL))}/env.sh; {script}"
    ran = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=seconds, check=False
    )
    return ran.stdout + ran.stderr


def wait_for(what: Callable[[], Any], seconds: float = 120, pause: float = 0.3) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(pause)
    return found


class Site:
    """The cloud, and the agent that observes it."""

    def __init__(self, agent: str) -> None:
        self.agent, self.cloud = agent, Cloud()
        self.run = Path(shell("echo $RUN").strip())
        self.port = int(shell("echo ${P_DB:-33306}"))
        self.roots = {name: found["uuid"] for name, found in self.cloud.rps().items()}

    # --- nova ---------------------------------------------------------------------------------

    def boot(self, name: str, host: str = HERE) -> str:
        server = str(self.cloud.boot(name, "small", host))
        found = self.cloud.wait(server, "ACTIVE")
        assert found["status"] == "ACTIVE", found
        return server

    def database(self, query: str) -> list[str]:
        return shell(
            f"mariadb --no-defaults -uroot -S $RUN/db.sock -N -e {shlex.quote(query)}"
        ).split()

    def pid(self, host: str) -> int:
        return int((self.run / "pids" / f"nova-compute{host[-1]}").read_text())

    def send(self, host: str, number: signal.Signals) -> None:
        os.kill(self.pid(host), number)

    def kill(self, host: str) -> None:
        self.send(host, signal.SIGKILL)
        wait_for(lambda: not self.runs(host))

    def start(self, host: str, command: str = NOVAS_OWN) -> None:
        self.begin(host, command)
        self.is_up(host)

    def begin(self, host: str, command: str = NOVAS_OWN) -> None:
        shell(f"bash $HERE/up compute {host[-1]} {command}")

    def has_service(self, host: str, **state: Any) -> None:
        """Give nova's service of a host a state, as soon as nova takes it."""
        services = self.cloud.nova("GET", "/os-services")["services"]
        (service,) = (
            one["id"] for one in services if (one["host"], one["binary"]) == (host, NOVAS_OWN)
        )

        def put() -> bool:
            try:
                self.cloud.nova("PUT", f"/os-services/{service}", json=state)
            except Exception as error:
                # A host is not up again before its nova-compute has seen what was evacuated.
                if "evacuation migration records remain" not in str(error):
                    raise
                return False
            return True

        wait_for(put)

    def lose_orders(self, host: str) -> None:
        """Take from the queue of a host what nova-compute was told and did not begin."""
        purge = f"kombu.Connection('{RABBIT}').channel().queue_purge('compute.{host}')"
        command = f'$VNOVA/bin/python -c "import kombu; print({purge})"'
        wait_for(lambda: shell(command).strip().splitlines()[-1:] not in ([], ["0"]), 30)

    def is_up(self, host: str) -> None:
        beats = f"select report_count from nova_cell1.services where host='{host}' and deleted=0"
        before = self.database(beats)
        wait_for(lambda: self.database(beats) != before)
        wait_for(lambda: (host, NOVAS_OWN, "enabled", "up") in self.cloud.services())

    def runs(self, host: str) -> bool:
        return Path(f"/proc/{self.pid(host)}").exists()

    def clean(self) -> None:
        """Bring the cloud to a state without servers, allocations and guests, with both hosts up,
        whatever the fault before left behind.
        """
        self.database(
            "update nova_cell1.instances set deleted=0 where deleted=id and deleted_at is null"
        )
        for host in HOSTS:
            if self.runs(host):
                self.send(host, signal.SIGCONT)
            else:
                self.begin(host)
        for host in HOSTS:
            self.has_service(host, forced_down=False)
            self.has_service(host, status="enabled")
            self.is_up(host)
        for server in self.cloud.servers():
            self.cloud.act(server["id"], "os-resetState", {"state": "active"})
            self.cloud.delete(server["id"])
            self.cloud.gone(server["id"])
        for found in self.cloud.rps().values():
            for consumer in found["alloc"]:
                self.cloud.placement("DELETE", f"/allocations/{consumer}")
        self.database(
            "update nova_cell1.migrations set status='error' where status not in ('confirmed')"
        )
        for host in HOSTS:
            for name in shell(f"vm {host[-1]} list --all --name").split():
                shell(f"vm {host[-1]} destroy {name}; vm {host[-1]} undefine {name}")

    def age(self, consumer: str) -> None:
        """Let an allocation be of the day before yesterday, which a move under way is not."""
        self.database(
            "update placement.allocations set created_at = created_at - interval 2 day, "
            f"updated_at = updated_at - interval 2 day where consumer_id = '{consumer}'"
        )

    def held(self, consumer: str) -> dict[str, dict[str, int]]:
        """What a consumer holds, by the name of the host."""
        names = {root: name for name, root in self.roots.items()}
        found = self.cloud.placement("GET", f"/allocations/{consumer}")["allocations"]
        return {names[root]: share["resources"] for root, share in found.items()}

    # --- the agent ----------------------------------------------------------------------------

    def told(self, host: str, *, asks: bool) -> list[dict[str, Any]]:
        """The drift of allocations of a host."""
        more = f"--config-file {self.run}/etc/ask.conf" if asks else ""
        command = (
            f"n {host[-1]} timeout 120 {self.agent} --once --observe --format json "
            f"--config-file {self.run}/etc/nova-{host}.conf {more} 2>/dev/null"
        )
        (node,) = json.loads(shell(command))["nodes"]
        assert not node["errors"], node["errors"]
        return [one for one in node["drift"] if one["kind"] != "reported-otherwise"]

    def carry_out(self, remedy: str) -> Iterator[str]:
        """Carry out a remedy literally, each command of it; yield what was done."""
        starts = re.search("start nova-compute|nova-compute is down|nova-compute destroys", remedy)
        if starts and not self.runs(HERE):
            self.begin(HERE)
            yield f"started nova-compute on {HERE}"
        for part in re.split(r"; |, (?=or )", remedy):
            if (found := COMMAND.search(part)) is None:
                continue
            command = re.split(r" lists | makes | to see", part[found.start() :])[0]
            path = f"{self.run}/bin"
            done = shell(f"PATH={path}:$PATH; export OS_PLACEMENT_API_VERSION=1.39; {command}", 300)
            last = [line for line in done.splitlines() if "Location" not in line][-1:]
            yield f"`{command}` → {last[0][:160] if last else '(nothing)'}"

    def shims(self) -> None:
        """``openstack``, ``nova-manage`` and ``virsh`` as an operator of this cloud has them."""
        folder = self.run / "bin"
        folder.mkdir(exist_ok=True)
        virsh = f"qemu+unix:///system?socket={self.run}/{HERE}/libvirt/sock/libvirt-sock"
        for name, line in {
            "openstack": '$VCTL/bin/openstack "$@"',
            "nova-manage": f'$VNOVA/bin/nova-manage --config-file {self.run}/etc/nova-controller.conf "$@"',
            "virsh": f'/usr/bin/virsh -c "{virsh}" "$@"',
        }.items():
            (folder / name).write_text(
                f". {TOOL}/env.sh\n{line}\n" if name != "virsh" else f"{line}\n"
            )
            (folder / name).write_text("#!/bin/bash\n" + (folder / name).read_text())
            (folder / name).chmod(0o755)


class Fault:
    """One fault: how it is planted, which consumer is told, and what is right afterwards."""

    only_nova_knows = False
    """Nothing of it can be told without nova's API."""

    def __init__(self, site: Site) -> None:
        self.site, self.consumers, self.right = site, [], {}  # type: ignore[var-annotated]

    def plant(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """What ends the fault for the next one."""


class _Died(Fault):
    """A move of which the nova-compute was killed at one of its tasks."""

    task, killed, status = "", HERE, ""

    def plant(self) -> None:
        for _ in range(5):
            server = self.site.boot("moved")
            self.move(server)
            self.site.cloud.act(server, "os-resetState", {"state": "active"})
            found = self.site.database(
                f"select uuid, status from nova_cell1.migrations where instance_uuid='{server}'"
            )
            if found[1:] == [self.status]:
                self.site.age(found[0])
                where = self.site.cloud.show(server)["host"]
                self.consumers = [found[0]]
                self.right = {server: {where: SMALL}, found[0]: {}}
                return
            self.site.clean()
        raise AssertionError("nova went on each time")

    def move(self, server: str) -> None:
        self.site.cloud.act(server, "migrate", {"host": THERE})
        self.reach(server)
        self.site.kill(self.killed)
        self.site.start(self.killed)

    def reach(self, server: str) -> None:
        import pymysql  # type: ignore[import-untyped]

        base = pymysql.connect(host="127.0.0.1", port=self.site.port, user="root", autocommit=True)
        with base.cursor() as cursor:
            query = (
                "select 1 from nova_cell1.instances i join nova_cell1.migrations m on "
                f"m.instance_uuid=i.uuid where i.uuid='{server}' and i.task_state='{self.task}' "
                f"and m.status='{self.status}' and m.dest_compute='{THERE}'"
            )
            wait_for(lambda: cursor.execute(query), 60, 0.001)


class DiedInPrep(_Died):
    task, killed, status = "resize_prep", THERE, "pre-migrating"

    def move(self, server: str) -> None:
        # As if nova-compute had died with its order just begun.
        self.site.send(THERE, signal.SIGSTOP)
        self.site.cloud.act(server, "migrate", {"host": THERE})
        wait_for(lambda: self.site.held(server).keys() == {THERE})
        self.site.kill(THERE)
        self.site.lose_orders(THERE)
        self.site.start(THERE)


class DiedMigrating(_Died):
    task, killed, status = "resize_migrating", HERE, "migrating"


class DiedInFinish(_Died):
    task, killed, status = "resize_finish", THERE, "post-migrating"


class LeakedBesideAnother(Fault):
    """A guest is doubled, and another of its flavor is allocated elsewhere only."""

    def plant(self) -> None:
        site = self.site
        doubled, astray, leaked = site.boot("doubled"), site.boot("astray"), str(uuid.uuid4())
        whole = site.cloud.placement("GET", f"/allocations/{doubled}")
        site.cloud.placement(
            "PUT",
            f"/allocations/{leaked}",
            json={**whole, "consumer_generation": None, "consumer_type": "MIGRATION"},
        )
        site.age(leaked)
        body = site.cloud.placement("GET", f"/allocations/{astray}")
        body["allocations"] = {site.roots[THERE]: {"resources": SMALL}}
        body["consumer_type"] = "INSTANCE"
        site.cloud.placement("PUT", f"/allocations/{astray}", json=body)
        self.consumers = [leaked, astray]
        self.right = {leaked: {}, doubled: {HERE: SMALL}, astray: {HERE: SMALL}}


class Evacuated(Fault):
    """A server was evacuated, and its old host, which nobody fenced, is back: the guest runs on."""

    def plant(self) -> None:
        site, server = self.site, self.site.boot("evacuated")
        site.kill(HERE)
        # Another file, because qemu locks the disk, and the hosts share their folder.
        disk = shlex.quote(str(site.run / "instances" / server / "disk"))
        shell(f"cp {disk} {disk}.new && mv {disk}.new {disk}")
        site.has_service(HERE, forced_down=True)
        site.cloud.act(server, "evacuate", {"host": THERE})
        wait_for(lambda: site.cloud.show(server)["host"] == THERE)
        assert site.cloud.wait(server, "ACTIVE")["status"] == "ACTIVE"
        self.consumers, self.right = [server], {server: {THERE: SMALL}}


class DeletedWhileDown(Fault):
    """A server was deleted while nova-compute was down: its guest runs on."""

    def plant(self) -> None:
        site, server = self.site, self.site.boot("deleted")
        site.kill(HERE)
        wait_for(lambda: (HERE, NOVAS_OWN, "enabled", "down") in site.cloud.services())
        site.cloud.delete(server)
        site.cloud.gone(server)
        self.consumers, self.right = [server], {server: {}}


class BuildUnderWay(Fault):
    """A build under way: a remedy does nothing to it."""

    def plant(self) -> None:
        self.site.send(HERE, signal.SIGSTOP)
        self.server = self.site.cloud.boot("built", "small", HERE)
        wait_for(lambda: self.site.held(self.server))
        self.consumers, self.right = [self.server], {self.server: {HERE: SMALL}}

    def end(self) -> None:
        self.site.send(HERE, signal.SIGCONT)
        assert self.site.cloud.wait(self.server, "ACTIVE")["status"] == "ACTIVE"


class ResizedInPlace(Fault):
    """A resize on the same host, under way: a remedy does nothing to it."""

    def plant(self) -> None:
        site, self.server = self.site, self.site.boot("resized")
        site.has_service(THERE, status="disabled")
        site.send(HERE, signal.SIGSTOP)
        site.cloud.act(self.server, "resize", {"flavorRef": "big"})
        query = f"select uuid from nova_cell1.migrations where instance_uuid='{self.server}'"
        (migration,) = wait_for(lambda: site.database(query))
        wait_for(lambda: site.held(migration) and site.held(self.server))
        self.consumers = [self.server, migration]
        self.right = {
            self.server: {HERE: {**SMALL, "MEMORY_MB": 128, "DISK_GB": 2}},
            migration: {HERE: SMALL},
        }

    def end(self) -> None:
        cloud = self.site.cloud
        self.site.send(HERE, signal.SIGCONT)
        assert cloud.wait(self.server, "VERIFY_RESIZE")["status"] == "VERIFY_RESIZE"
        cloud.act(self.server, "confirmResize")
        assert cloud.wait(self.server, "ACTIVE")["status"] == "ACTIVE"


class DeletedInTheDatabase(Fault):
    """A server is deleted in nova's database; its guest runs and holds its allocation."""

    only_nova_knows = True

    def plant(self) -> None:
        site, server = self.site, self.site.boot("ghost")
        # It would find the record of what is deleted, which a database that was purged lacks.
        site.send(HERE, signal.SIGSTOP)
        site.database(f"update nova_cell1.instances set deleted=id where uuid='{server}'")
        self.consumers, self.right = [server], {server: {}}


FAULTS = {
    "died-in-resize_prep": DiedInPrep,
    "died-in-resize_migrating": DiedMigrating,
    "died-in-resize_finish": DiedInFinish,
    "leaked-beside-another": LeakedBesideAnother,
    "evacuated-and-back": Evacuated,
    "deleted-while-down": DeletedWhileDown,
    "build-under-way": BuildUnderWay,
    "resized-in-place": ResizedInPlace,
    "deleted-in-the-database": DeletedInTheDatabase,
}


def line(one: dict[str, Any]) -> str:
    return f"{one['severity']} `{one['kind']}` {one['consumer']}: {one['detail']}  \n    remedy: {one['remedy']}"


def show(name: str, site: Site, *, asks: bool) -> bool:
    """Plant one fault, print what becomes of it, and return whether all is right afterwards."""
    site.clean()
    fault = FAULTS[name](site)
    fault.plant()
    print(f"\n## {name}, {'with' if asks else 'without'} nova's API\n", flush=True)
    found = site.told(HERE, asks=asks)
    for one in found:
        print(f"- told: {line(one)}")
    said = {one["consumer"] for one in found}
    told = said >= set(fault.consumers)
    if not told:
        print(f"- NOT TOLD: {set(fault.consumers) - said}")
    done = set[str]()
    for one in found:
        if one["remedy"] not in done:
            for did in site.carry_out(one["remedy"]):
                print(f"- did: {did}")
        done.add(one["remedy"])
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: all(site.held(one) == held for one, held in fault.right.items()), 45)
    wrong = {one: site.held(one) for one, held in fault.right.items() if site.held(one) != held}
    print(f"- allocations afterwards: {f'WRONG {wrong}, not {fault.right}' if wrong else 'right'}")
    fault.end()
    left: list[dict[str, Any]] = []

    def is_well() -> bool:
        left[:] = [one for one in site.told(HERE, asks=asks) if one["severity"] == "warning"]
        return not left

    # nova-compute begins to look for guests to destroy up to a minute after its start.
    with contextlib.suppress(TimeoutError):
        wait_for(is_well, 120, 5)
    print(f"- still told: {[line(one)[:200] for one in left] or 'nothing'}", flush=True)
    return told and not wrong and not left


def log_name(site: Site) -> bool:
    """Return whether the log of nova-compute with the engine has nova's own name."""
    folder = site.run / "log" / HERE
    site.clean()
    site.kill(HERE)
    for file in folder.glob("*nova-compute.log"):
        file.unlink()
    site.start(HERE, "agent-nova-compute")
    names = sorted(file.name for file in folder.glob("*nova-compute.log"))
    print(f"\n## log file of agent-nova-compute\n\n- {names}", flush=True)
    site.kill(HERE)
    site.start(HERE)
    return names == ["nova-compute.log"]


def main(agent: str, *names: str) -> None:
    site = Site(agent)
    site.shims()
    # A deleted server's guest is looked for each half hour otherwise.
    for host in HOSTS:
        config = site.run / "etc" / f"nova-{host}.conf"
        text = config.read_text()
        if "running_deleted_instance_poll_interval" not in text:
            more = "running_deleted_instance_poll_interval = 10\nsync_power_state_interval = 30\n"
            config.write_text(text.replace("[DEFAULT]\n", f"[DEFAULT]\n{more}", 1))
            site.kill(host)
            site.start(host)
    results = {}
    for name in names or (*FAULTS, "log"):
        if name == "log":
            results[name] = log_name(site)
            continue
        for asks in (True,) if FAULTS[name].only_nova_knows else (False, True):
            key = f"{name}, {'with' if asks else 'without'} nova's API"
            try:
                results[key] = show(name, site, asks=asks)
            except Exception as error:  # noqa: BLE001 - the others are still to be shown
                print(f"- FAILED: {error!r}", flush=True)
                results[key] = False
    site.clean()
    print("\n## Results\n")
    for key, right in results.items():
        print(f"- {key}: {'right' if right else 'NOT RIGHT'}")
    raise SystemExit(not all(results.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
