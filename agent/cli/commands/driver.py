"""``agent driver check``: whether a driver keeps the promises of the driver interface."""

import sys
from contextlib import redirect_stdout

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.output import write, write_document
from agent.conformance.suite import check_conformance
from agent.driver import interface as drivers
from agent.model.report import CHANGED, DONE, PARTLY
from agent.render.conformance import conformance_document, render_conformance
from agent.render.look import look_of


def check_driver(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check the driver, and show each promise with what breaks it. Return the exit code: CHANGED if
    a promise is broken, PARTLY if one could not be checked.
    """
    called = drivers.canonical_name(options.arguments["driver"])
    # What a driver prints must not be in the document.
    with redirect_stdout(sys.stderr):
        found = check_conformance(
            called,
            lambda: drivers.load(called, conf),
            conf,
            nodes=options.nodes,
            every_node=options.arguments["all"],
        )
    code = CHANGED if found.having("broken") else PARTLY if found.having("unchecked") else DONE
    if options.as_document:
        write_document(conformance_document(found, code), options)
    else:
        write(render_conformance(found, look_of(sys.stdout, wide=options.wide)))
    return code


RUN: Commands = {
    ("driver", "check"): check_driver,
}
