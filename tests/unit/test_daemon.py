"""The daemon's loop in this process: the real core on a real Placement, the test in place of
signals and of systemd.
"""

import gc
import threading
import time
from collections.abc import Callable
from typing import get_args

import pytest
from oslo_config import cfg
from sqlalchemy import select

from agent.bootstrap import components
from agent.cli.configuration import load
from agent.cli.parser import parse
from agent.errors import ConfigError
from agent.model.finding import AgentState
from agent.placement import clock
from agent.placement.transport import Timeouts, Transport
from agent.service import audit_queue, background, runtime
from agent.service.daemon import Daemon
from agent.store.store import open_read_only
from agent.store.tables import LEASE
from tests.support import faults
from tests.support.ini import write_config
from tests.support.tracking import Time


class Manager:
    """A notifier that keeps what it is told, and when."""

    watchdog_interval: float | None = None

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def ready(self, status: str = "") -> None:
        self.told.append(("ready", status))

    def status(self, text: str) -> None:
        self.told.append(("status", text))

    def watchdog(self) -> None:
        self.told.append(("watchdog", ""))

    def reloading(self, status: str = "") -> None:
        self.told.append(("reloading", status))

    def stopping(self, status: str = "") -> None:
        self.told.append(("stopping", status))

    def of(self, kind: str) -> list[str]:
        return [text for one, text in self.told if one == kind]


class Operator:
    """Signals as a function of the test's sends them: it is called whenever the daemon listens."""

    def __init__(self, script: Callable[["Operator"], object]) -> None:
        self.stop = self.reload = False
        self._script = script

    def take(self, seconds: float = 0) -> None:
        self._script(self)
        if not (self.stop or self.reload):
            time.sleep(min(seconds, 0.01))

    def wake(self) -> None:
        """It is never asleep for long."""


@pytest.fixture
def service(placement, tmp_path, monkeypatch):
    """Run the daemon until ``script`` stops it, with due times a millisecond apart; what systemd
    was told.
    """
    host_file = tmp_path / "host.yaml"
    host_file.write_text("providers:\n- name: $NODE\n  inventories:\n    VCPU: {total: 8}\n")
    config = {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": "node-a",
            "state_path": tmp_path / "nova",
        },
        "fake": {"host_file": host_file},
        "store": {"path": tmp_path / "store"},
        "api": {"socket": tmp_path / "agent.sock"},
        "placement": {"auth_type": "admin_token", "endpoint": placement.url, "token": "t"},
    }
    file = write_config(tmp_path / "agent.conf", config)
    monkeypatch.setattr(
        components,
        "connect_http",
        lambda _conf, cancelled: Transport(
            placement.adapter(), timeouts=Timeouts(), max_in_flight=1, cancelled=cancelled
        ),
    )
    monkeypatch.setattr(audit_queue, "DEFAULT_INTERVAL", 0.001)
    manager = Manager()

    def run(script: Callable[[Operator], object]) -> Manager:
        def reread():
            return load(parse(["--config-file", str(file)]), {})

        Daemon(
            reread(),
            reread,
            lambda _conf: None,
            lambda _conf, _usable: None,
            manager,
            Operator(script),
        ).run()
        # Whatever systemd is told begins with a word that docs/states.md has.
        assert {text.partition(":")[0] for _, text in manager.told if text} <= set(
            get_args(AgentState)
        )
        return manager

    def configure(group: str, **options: object) -> None:
        config[group].update(options)
        write_config(tmp_path / "agent.conf", config)

    run.manager, run.configure, run.host_file = manager, configure, host_file
    return run


def audits(manager: Manager) -> int:
    return len(
        [
            text
            for kind, text in manager.told
            if kind in ("ready", "status") and text.startswith(("ready:", "degraded:"))
        ]
    )


def stopped_after(number: int, service) -> Callable[[Operator], None]:
    def script(operator):
        operator.stop = audits(service.manager) >= number

    return script


def test_a_daemon_that_audits_only_once_asks_placement_in_that_pass(service, placement):
    service.configure("DEFAULT", update_resources_interval=-1)
    for _ in range(2):
        placement.clear()
        service.manager.told.clear()
        manager = service(stopped_after(1, service))
    assert manager.of("ready") == ["ready: 1 in-sync"]
    assert len(placement.requests) == 1


def test_what_a_reload_replaced_is_gone_after_the_next_pass(service):
    """The replaced parts refer to each other, and Python looks for such garbage only now and then."""
    configurations = {}

    def script(operator):
        reloads = len(service.manager.of("reloading"))
        settled = audits(service.manager) > 2 * reloads + 1
        if settled and reloads in (1, 5) and reloads not in configurations:
            found = [one for one in gc.get_objects() if isinstance(one, cfg.ConfigOpts)]
            configurations[reloads] = len(found)
        operator.stop = 5 in configurations
        operator.reload = reloads == 0 or (settled and 1 in configurations and reloads < 5)

    gc.collect()
    gc.disable()
    try:
        service(script)
    finally:
        gc.enable()
    assert configurations[5] == configurations[1]


def test_a_first_audit_that_takes_long_does_not_keep_systemd_waiting(
    service, placement, monkeypatch
):
    monkeypatch.setattr(background, "PATIENCE", 0.5)
    monkeypatch.setattr(background, "POLL", 0.02)
    placement.faults.add(faults.delay(1.5), times=1)
    manager = service(lambda operator: setattr(operator, "stop", audits(service.manager) >= 1))
    ready, status = manager.of("ready"), manager.of("status")
    # On a busy machine something else may take as long before.
    assert "takes longer than" in ready[0]
    assert any(
        text.startswith("starting: an audit takes longer than") for text in (*ready, *status)
    )
    assert any("; it waits for Placement at " in text for text in (*ready, *status))
    assert status[-1] == "ready: 1 changed"


def test_a_full_reread_that_was_asked_for_outlasts_an_outage(service, placement):
    phases = []

    def script(operator):
        done = audits(service.manager)
        if done >= 2 and not phases:
            phases.append("asked")
            placement.clear()
            placement.faults.add(faults.answer(503), times=None)
            operator.reload = True
        elif (
            "asked" in phases
            and any("degraded" in text for text in service.manager.of("status"))
            and "back" not in phases
        ):
            phases.append("back")
            placement.faults.clear()
            placement.clear()
        operator.stop = "back" in phases and service.manager.of("status")[-1] == "ready: 1 in-sync"

    service(script)
    assert any(one.path.endswith("/inventories") for one in placement.requests)


def test_a_refused_configuration_stays_in_the_status_until_a_good_one_comes(
    service, monkeypatch, tmp_path
):
    good = (tmp_path / "agent.conf").read_text
    phases = []

    def script(operator):
        statuses = service.manager.of("status")
        if audits(service.manager) >= 1 and not phases:
            phases.append(good())
            (tmp_path / "agent.conf").write_text(phases[0].replace("fake.file", "none-such"))
            operator.reload = True
        elif len(phases) == 1 and "refused" in statuses[-1]:
            phases.append("good")
            (tmp_path / "agent.conf").write_text(phases[0])
            operator.reload = True
        operator.stop = len(phases) == 2 and statuses[-1] == "ready: 1 in-sync"

    manager = service(script)
    assert [text.split(":")[1] for text in manager.of("ready")[1:]] == [
        " the new configuration is refused",
        " the configuration was reloaded",
    ]
    assert any(
        text.startswith("ready: 1 in-sync; the new configuration is refused: ")
        for text in manager.of("status")
    )


def test_a_log_that_cannot_be_set_up_refuses_the_configuration(service, monkeypatch):
    """The part about logs comes last, and is undone."""
    set_up = []

    def set_up_log(conf):
        set_up.append(conf)
        if len(set_up) == 1:
            raise ConfigError("the log cannot be set up")

    original = Daemon.__init__
    monkeypatch.setattr(
        Daemon,
        "__init__",
        lambda self, conf, reread, _set_up, *rest: original(self, conf, reread, set_up_log, *rest),
    )

    def script(operator):
        operator.reload = audits(service.manager) >= 1 and not service.manager.of("reloading")
        operator.stop = audits(service.manager) >= 3

    manager = service(script)
    assert "ready: the new configuration is refused: the log cannot be set up" in manager.of(
        "ready"
    )
    assert len(set_up) == 2
    assert set_up[0] is not set_up[1]


def test_nobody_takes_the_node_over_while_a_reload_takes_long(service, monkeypatch, tmp_path):
    from drivers.fake.file import FileDriver

    now, starts, left = Time(), [], []
    monkeypatch.setattr(clock, "now", now)
    monkeypatch.setattr(runtime, "KEEP_EVERY", 0.01)
    start = FileDriver.start

    def seconds_left():
        with open_read_only(tmp_path / "store") as store, store.reading() as connection:
            return connection.execute(select(LEASE.c.expires_at)).scalar_one() - now()

    def slow(driver, context):
        start(driver, context)
        starts.append(driver)
        if len(starts) == 2:
            # Twice as long as a lease, which is of 300 seconds.
            for _ in range(4):
                now.pass_by(150)
                end = time.monotonic() + 30
                while seconds_left() < 250 and time.monotonic() < end:
                    time.sleep(0.01)
                left.append(seconds_left())

    def script(operator):
        operator.reload = audits(service.manager) >= 1 and not service.manager.of("reloading")
        operator.stop = len(
            starts
        ) >= 2 and "ready: the configuration was reloaded" in service.manager.of("ready")

    monkeypatch.setattr(FileDriver, "start", slow)
    service(script)
    assert (len(left), min(left) > 150) == (4, True), left
    assert not [one for one in threading.enumerate() if one.name == "leases"]
