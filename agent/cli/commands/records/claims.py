"""``agent claim create|abort|show``."""

from oslo_config import cfg

from agent.cli.daemon_client import client
from agent.cli.options import Options
from agent.cli.record_lists import asked, show_one, views
from agent.cli.request_file import request_in
from agent.render.records import claim_lines


def create_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Promise a new guest its room.

    :raises AgentError: there is no request in the file, no agent runs, or it refuses.
    """
    agent = client(conf)
    return show_one(options, "claim", agent.create_claim(request_in(options.arguments["file"], agent)), claim_lines)


def abort_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Give it back.

    :raises ApiProblem, ApiUnreachable: the agent refuses, or none runs.
    """
    return show_one(options, "claim", client(conf).abort_claim(options.arguments["claim"]), claim_lines)


def show_claim(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show it.

    :raises UnknownClaim, ApiProblem: there is none.
    :raises StoreError, ApiUnreachable: neither daemon nor store tell.
    """
    claim = options.arguments["claim"]
    found, _ = asked(conf, options, lambda agent: agent.claim(claim), lambda store: views(conf, store).claim(claim))
    return show_one(options, "claim", found, claim_lines)
