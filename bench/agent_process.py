"""The agent as a process of its own, whose passes the bench asks for one by one: a line in, a pass,
its figures out.
"""

import gc
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from oslo_config import cfg

from agent.audit.context import AuditOptions
from agent.audit.fleet import Fleet
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Options, Source
from agent.cli.configuration import load
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.stored_state import InstanceClaim
from bench.figures import Message, Stopwatch, serve
from bench.tree_driver import HELD, ROOT, Tree, TreeDriver
from tests.support.placement import PROJECT, USER

FLAVOR = Flavor("bench", "bench", vcpus=HELD["VCPU"], memory_mb=HELD["MEMORY_MB"])


class Agent:
    """The nodes of an agent, opened by the first message: so the first pass includes the assembly
    of the process (store, driver), but not the imports, which do not grow.
    """

    def __init__(self, conf: cfg.ConfigOpts, stack: ExitStack) -> None:
        self._conf, self._stack = conf, stack
        self._fleet: Fleet | None = None
        # As the command and the daemon do.
        gc.freeze()

    def work(self, message: Message) -> Message:
        """Make a pass; ``claims`` or ``abort`` in the message ask for that instead.

        ``tree``: what the common driver reports from now on.
        """
        if self._fleet is None:
            self._fleet = self._stack.enter_context(running_fleet(self._conf, threading.Event()))
        tracker = self._fleet.context.tracking.tracker
        if "tree" in message:
            driver = cast(TreeDriver, self._fleet.context.driver)
            driver.tree = Tree(**message["tree"])
        if "claims" in message:
            for instance in message["claims"]:
                tracker.claim(_request(instance))
            return {}
        if "abort" in message:
            tracker.abort(message["abort"])
            return {}
        report = self._fleet.run(AuditOptions(start=True))
        problems = [*report.errors, *(error for node in report.nodes for error in node.errors)]
        return {
            "states": sorted({node.state for node in report.nodes}),
            "errors": [problem.message for problem in problems],
        }


def _request(instance: str) -> InstanceClaim:
    return InstanceClaim(
        id=instance,
        node=ProviderUuid(ROOT.format(1)),
        instance=Instance(
            uuid=ConsumerUuid(instance), project_id=PROJECT, user_id=USER, flavor=FLAVOR
        ),
    )


def main() -> None:
    """One argument: the configuration file."""
    stopwatch = Stopwatch()
    conf = load(Options(sources=(Source(Path(sys.argv[1])),)))
    with ExitStack() as stack:
        serve(stopwatch, Agent(conf, stack).work)


if __name__ == "__main__":
    main()
