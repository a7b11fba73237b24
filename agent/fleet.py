"""All nodes of one driver: found, audited several at a time, reported together."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from agent.audit import House, NodeAudit
from agent.audit_record import Mode, Node
from agent.desired.root_traits import agent_trait
from agent.driver_answers import chosen_nodes, managed_nodes
from agent.errors import AgentError, PlacementError
from agent.model.names import ProviderUuid, printable
from agent.model.report import METHODS, NodeReport, Problem, Report
from agent.placement.client import Client, Row
from agent.placement.server import Server
from agent.version import agent_version

LOG = logging.getLogger(__name__)


class Fleet:
    """The nodes of a process, each with what it remembers between audits."""

    def __init__(self, house: House, driver_name: str, host: str, workers: int, *, provisional: bool = False, notice: str = "") -> None:
        self.house = house
        self._driver_name, self._host, self._workers = driver_name, host, workers
        self._provisional, self._notice = provisional, notice
        self._audits: dict[str, NodeAudit] = {}

    def rehearsal(self) -> "Fleet":
        """A fleet for dry runs beside this one: what it takes for done stays its own, and nothing of it is kept."""
        served = self.house.server
        house = replace(self.house, server=Server(served.transport, served.mode, served.storage, keep=False))
        return Fleet(house, self._driver_name, self._host, self._workers, provisional=self._provisional, notice=self._notice)

    def find(self) -> Mapping[str, str]:
        """The nodes that the driver manages now, uuid to name.

        :raises DriverError: the backend does not answer, or the answer makes no sense.
        """
        return managed_nodes(self.house.driver, self.house.worker, self._driver_name, self.house.facts_deadline)

    def run(self, mode: Mode, names: Sequence[str] = (), progress: Callable[[str], None] | None = None) -> Report:
        """Audit every node, or those whose names match ``names`` or whose uuids are among them. Never raises an :class:`AgentError`."""
        begun = time.monotonic()
        client = self.house.server.client()
        errors: list[AgentError] = []
        nodes: Sequence[NodeReport] = ()
        try:
            found = self.find()
            chosen, unknown = chosen_nodes(found, names, self._driver_name)
            errors += unknown
            rows = self._rows(client, mode, found, chosen)
            gone = {} if names else self._gone(found, rows or {})
            count = progress or (lambda _name: None)
            nodes = [*self._audit_all(chosen, mode, rows, count), *self._audit_all(gone, mode, rows, count, gone=True)]
            if self.house.records is not None and not mode.dry_run:
                # Afterwards, because until then what has ended may prove whose leaked allocations are.
                self.house.records.audits.tidy()
            if not names:
                self._tell_absent(found, nodes)
        except AgentError as error:
            errors.append(error)
        server, counts = self.house.server, client.exchange.counts
        known = server.knowledge
        return Report(
            version=agent_version(), host=self._host, mode=server.mode, endpoint=known.endpoint if known else None,
            max_version=known.max_version if known else None, dry_run=mode.dry_run, nodes=nodes,
            requests={method: counts.get(method, 0) for method in METHODS},
            errors=tuple(Problem(one.code, one.message, one.remedy, one.fatal) for one in errors), seconds=time.monotonic() - begun, notice=self._notice,
        )  # fmt: skip

    def _tell_absent(self, found: Mapping[str, str], nodes: Sequence[NodeReport]) -> None:
        """Tell of providers that the operator's files name and no node has. A node that was never seen may have any."""
        sighted = [self._audit_of(uuid, name).sighted for uuid, name in found.items()]
        known = [keys for keys in sighted if keys is not None]
        if len(known) == len(sighted):
            names = {provider.name for node in nodes for provider in node.tree.providers()}
            self.house.absences.tell(self.house.provider_config, frozenset().union(*known), names)

    def _rows(
        self, client: Client, mode: Mode, found: Mapping[str, str], chosen: Mapping[str, str]
    ) -> Mapping[ProviderUuid, Row] | None:
        """What one list tells of many nodes. Without a Placement, what is promised on the nodes is counted all the same.

        :raises PlacementError: there is no Placement; asked here, so that it is one request and the reason is given once.
        """
        if self.house.records is not None and not mode.dry_run:
            self.house.records.audits.unavailable([ProviderUuid(uuid) for uuid in found])
        try:
            self.house.server.connect(client, ask=mode.reread)
            return self._listed(client, found)
        except PlacementError:
            for uuid, name in chosen.items():
                self._audit_of(uuid, name).count(mode)
            raise

    def _listed(self, client: Client, found: Mapping[str, str]) -> Mapping[ProviderUuid, Row] | None:
        """All roots that carry this agent's mark, in one request; None where a node's own tree says as much.

        Asked for many nodes, and for one if there may be others that the driver has no more.
        """
        if len(found) == 1 and not self.house.server.storage.roots(self._host) - found.keys():
            return None
        return {row.uuid: row for row in client.providers_with_trait(agent_trait(self.house.agent))}

    def _gone(self, found: Mapping[str, str], rows: Mapping[ProviderUuid, Row]) -> Mapping[str, str]:
        """The roots that are ours, that the driver does not have any more, and that its backend says are deleted.

        Only the backend's own word counts: a node may be missing because another agent has it now.
        """
        gone = {}
        for uuid, row in rows.items():
            if uuid in found or not self.house.server.storage.journal(uuid).owns(uuid):
                continue
            if self.house.worker.call(self.house.driver.is_node_deleted, row.name, deadline=self.house.facts_deadline, node=row.name):
                gone[str(uuid)] = row.name
            else:
                LOG.info("node %s is not managed here any more, but it is not deleted either; its providers stay", printable(row.name))
        return gone

    def _audit_all(
        self, nodes: Mapping[str, str], mode: Mode, rows: Mapping[ProviderUuid, Row] | None, progress: Callable[[str], None], *, gone: bool = False
    ) -> Sequence[NodeReport]:
        audits: list[Future[NodeReport]] = []

        def audit(place: int, uuid: str, name: str) -> NodeReport:
            one = self._audit_of(uuid, name)
            report = one.run(mode, None if rows is None else _structure(one, rows), gone=gone, earlier=lambda: wait(audits[:place]))
            progress(name)
            return report

        items = list(nodes.items())
        # The first goes alone, because what it learns of Placement the others need not ask again.
        first, rest = items[:1], items[1:]
        reports = [audit(0, *item) for item in first]
        if rest:
            with ThreadPoolExecutor(self._workers, thread_name_prefix="audit") as pool:
                for place, item in enumerate(rest):
                    audits.append(pool.submit(audit, place, *item))
        return [*reports, *(one.result() for one in audits)]

    def _audit_of(self, uuid: str, name: str) -> NodeAudit:
        known = self._audits.get(uuid)
        if known is None or known.node.name != name:
            known = self._audits[uuid] = NodeAudit(Node(ProviderUuid(uuid), name, self._driver_name, self._provisional), self.house)
        return known


def _structure(one: NodeAudit, rows: Mapping[ProviderUuid, Row]) -> Sequence[Row] | None:
    """What the list for all nodes says of one: enough for a known node without children, and for one that is new.

    None: it has to be asked for by itself.
    """
    row, size = rows.get(one.node.uuid), len(one.notebook.view.tree)
    if row is not None:
        return [row] if size == 1 else None
    return [] if size == 0 else None
