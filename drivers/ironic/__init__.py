"""Bare metal: the nodes of an ironic; each is a root provider of its own, used by one consumer at a
time.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from oslo_config import cfg
from retrying import Retrying

from agent.driver.interface import Allocations, HostContext, Instances
from agent.errors import ConfigError, DriverError, NotReady
from agent.model.facts import HostFacts
from agent.model.names import ApiVersion, is_uuid, printable
from agent.model.provider_tree import ProviderTree
from drivers.ironic.managed import (
    CREDENTIALS,
    Api,
    NodeList,
    Scope,
    build_api,
    managed_nodes,
    patient,
    persistent,
)
from drivers.ironic.node import BareMetalFacts, BareMetalNode, facts_of, put_node, reserved

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class IronicDriver:
    """Manages the bare-metal nodes of a conductor group and shard, each as a root provider of its
    own. Threads may share it.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._scope = Scope.from_options(conf)
        self._skip_in_use: bool = conf.workarounds.skip_reserve_in_use_ironic_nodes
        self._stopped = threading.Event()
        self._api: Api | None = None
        self._instances: Instances | None = None
        self._list = NodeList()

    # --- agent.driver.interface.Driver ------------------------------------------------------------

    def check(self, host: str) -> None:  # noqa: ARG002 - the host's name decides nothing here
        """Check that [ironic] can be used; nothing is sent.

        :raises ConfigError: it cannot.
        """
        build_api(self._conf)

    def start(self, host: HostContext) -> None:  # noqa: ARG002 - the nodes bring their own names and uuids
        """Ask ironic for its versions, repeatedly as [ironic] api_max_retries says.

        :raises NotReady: it does not answer.
        :raises ConfigError: it is too old for the options, or refuses the credentials.
        """
        self._stopped.clear()
        api, options = build_api(self._conf), self._conf.ironic
        policy = persistent(
            self._stopped,
            options.api_max_retries,
            options.api_retry_interval,
            self._conf.compute.start_deadline,
        )
        try:
            highest = self._retry(policy, lambda: self._check_api(api))
        except NotReady as error:
            if error.data.get("kind") == CREDENTIALS:
                raise ConfigError(error.message, error.remedy) from error
            raise
        self._api = api
        LOG.info(
            "ironic at %s offers API %s, and is asked with %s; managed here: %s",
            api.url,
            highest,
            self._scope.version,
            self._scope.lease,
        )

    def stop(self) -> None:
        """End all waits between retries."""
        self._stopped.set()

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the uuid of every managed node, which is its name too.

        :raises NotReady: ironic does not answer; the last list stays in use.
        """
        if refresh or not self._list.taken_at:
            self._refresh()
        return {uuid: uuid for uuid in self._list.nodes}

    def facts(self, name: str) -> HostFacts:
        """Return the facts of the node from the last list; for a node that is not in the list, from
        ironic now.

        :raises DriverError: there is no such node, or it has no resource class.
        :raises NotReady: ironic does not answer.
        """
        node, taken_at = self._list.nodes.get(name), self._list.taken_at
        if node is None:
            node, taken_at = self._ask(name), time.time()
        if node is None:
            raise DriverError(f"ironic has no node {printable(name)}", "ask for one of its nodes")
        return facts_of(node, taken_at, skip_in_use=self._skip_in_use)

    def is_node_deleted(self, name: str) -> bool:
        """Whether ironic itself says now that there is no such node.

        :raises NotReady: ironic does not answer.
        """
        return self._ask(name) is None

    # --- further protocols of agent.driver.interface ----------------------------------------------

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:  # noqa: ARG002 - nothing moves
        """Give the node's root its one unit and its traits.

        :raises DriverError: the facts are another driver's.
        """
        if not isinstance(facts, BareMetalFacts):
            raise DriverError(
                f"node {facts.name}: the facts do not come from ironic",
                "shape with the facts of the same driver",
            )
        put_node(tree, facts)

    def lease(self) -> str:
        """Return the name of the lease: one agent at a time manages a conductor group and shard."""
        return self._scope.lease

    def with_instances(self, instances: Instances) -> None:
        """Leave out nodes with instances of other hosts from now on."""
        self._instances = instances

    def mark(self, name: str) -> Hashable:
        """Return what the node's provider depends on, from the last list; None if the list does not
        have it.
        """
        node = self._list.nodes.get(name)
        return (
            None
            if node is None
            else (reserved(node, skip_in_use=self._skip_in_use), node.resource_class, node.traits)
        )

    # --- helpers ----------------------------------------------------------------------------------

    def _check_api(self, api: Api) -> ApiVersion:
        """Return ironic's highest version, after checking that it is high enough and that the
        account may list nodes.
        """
        highest = api.highest()
        self._scope.check(highest, api.url)
        # The versions need no account, so only the probe checks it.
        api.probe(self._scope.version, self._scope.filters)
        return highest

    def _refresh(self) -> None:
        """Replace the list of nodes by a new one, read completely.

        :raises NotReady: ironic does not answer.
        """
        api, begun = self._require_api(), time.monotonic()
        # An incomplete list is no list: it is read to its end before any of it is used.
        found = self._retry(
            patient(self._stopped),
            lambda: [
                BareMetalNode.of(node)
                for node in api.nodes(self._scope.version, self._scope.filters)
            ],
        )
        taken_at = time.time()
        # The instances are read after the nodes, because an instance that came in between would
        # otherwise look like another host's.
        now = NodeList.of(managed_nodes(found, self._instances, self._ask), taken_at)
        now.tell_doubts(self._list)
        LOG.debug(
            "%d nodes listed in %.1f s, %d of them managed here; the list before was %.0f s old",
            len(found),
            time.monotonic() - begun,
            len(now.nodes),
            taken_at - self._list.taken_at if self._list.taken_at else 0.0,
        )
        self._list = now

    def _ask(self, uuid: str) -> BareMetalNode | None:
        """Ask ironic about one node; None if it does not exist.

        :raises DriverError: ``uuid`` is none.
        :raises NotReady: ironic does not answer.
        """
        if not is_uuid(uuid):
            raise DriverError(
                f"{printable(uuid)} is no uuid of a bare-metal node",
                "ask for one of ironic's nodes",
            )
        api = self._require_api()
        document = self._retry(patient(self._stopped), lambda: api.node(uuid, self._scope.version))
        return None if document is None else BareMetalNode.of(document)

    def _require_api(self) -> Api:
        if self._api is None:
            raise NotReady("the ironic driver has not been started", "start it first")
        return self._api

    @staticmethod
    def _retry(policy: Retrying, question: Callable[[], Result]) -> Result:
        answer: Result = policy.call(question)
        return answer
