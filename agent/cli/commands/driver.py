"""``agent driver check``: whether a driver keeps the promises of the driver interface."""

import sys
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

from oslo_config import cfg

from agent.bootstrap.components import STOP_DEADLINE
from agent.cli.command import Options
from agent.cli.output import write, write_document
from agent.conf.default import host_name
from agent.driver import interface as drivers
from agent.driver.answers import Nodes, chosen_nodes
from agent.driver.conformance.apart import check_apart
from agent.driver.conformance.trial_settings import CallDeadlines, TrialSettings
from agent.driver.interface import HostContext
from agent.errors import ConfigErrors
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid
from agent.model.provider_tree import DesiredTree, PresentTree, ProviderTree
from agent.model.report import CHANGED, DONE, PARTLY
from agent.render.conformance import conformance_document, render_conformance
from agent.render.look import look_of
from agent.tree.host_tree import shape_host
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy


def check_driver(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the driver, and show each promise with what breaks it. Return the exit code: CHANGED if
    a promise is broken, PARTLY if one could not be checked.
    """
    called = drivers.canonical_name(options.arguments["driver"])
    with TemporaryDirectory(prefix="agent-driver-check-") as folder:
        found = check_apart(_settings(conf, options, called, Path(folder)))
    code = CHANGED if found.count("broken") else PARTLY if found.count("unchecked") else DONE
    if options.as_document:
        write_document(conformance_document(found, code), options)
    else:
        look = look_of(sys.stdout, wide=options.wide)
        write(render_conformance(found, look, as_table=options.format == "table"))
    return code


def _settings(conf: cfg.ConfigOpts, options: Options, called: str, folder: Path) -> TrialSettings:
    policy = Policy.from_options(conf)

    def shape_core(tree: ProviderTree, root: str, facts: HostFacts) -> None:
        trees = NodeTrees(DesiredTree(tree), PresentTree(ProviderTree()), ProviderUuid(root))
        shape_host(trees, facts, policy)

    def choose(nodes: Nodes) -> Nodes:
        chosen, errors = chosen_nodes(nodes, options.nodes, called)
        ConfigErrors.raise_if_any(errors)
        return chosen

    compute = conf.compute
    return TrialSettings(
        called,
        lambda: drivers.load(called, conf),
        HostContext(host_name(conf), str(uuid.uuid4()), folder),
        CallDeadlines(
            compute.start_deadline, STOP_DEADLINE, compute.nodes_deadline, compute.facts_deadline
        ),
        shape_core,
        choose,
        every_node=options.arguments["all"],
    )
