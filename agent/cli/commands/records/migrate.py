"""``agent migrate claim|finish|confirm|revert|abort``."""

from typing import get_args

from oslo_config import cfg

from agent.api.client import MoveStep
from agent.cli.daemon_client import client
from agent.cli.options import Options
from agent.cli.record_lists import show_one
from agent.cli.request_file import request_in
from agent.render.records import move_lines


def claim_move(conf: cfg.ConfigOpts, options: Options) -> int:
    """Promise a guest that moves its room.

    :raises AgentError: there is no request in the file, no agent runs, or it refuses.
    """
    agent = client(conf)
    return show_one(options, "move", agent.create_move(request_in(options.arguments["file"], agent)), move_lines)


def advance_move(conf: cfg.ConfigOpts, options: Options) -> int:
    """Take a move where the command's second word says.

    :raises ApiProblem, ApiUnreachable: the agent refuses, or none runs.
    """
    wanted: MoveStep = next(one for one in get_args(MoveStep) if one == options.command[1])
    return show_one(options, "move", client(conf).take_move(options.arguments["move"], wanted), move_lines)
