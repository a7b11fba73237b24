"""``agent completion SHELL``: prints the script by which a shell completes the command line."""

from collections.abc import Callable, Mapping

from oslo_config import cfg

from agent.cli.command import Options
from agent.cli.commands.completion.bash import bash_script
from agent.cli.commands.completion.command_words import CommandLineWords, command_line_words
from agent.cli.commands.completion.fish import fish_script
from agent.cli.commands.completion.zsh import zsh_script
from agent.cli.output import write, write_document

SCHEMA = "compute-node-agent/completion/1"
SCRIPTS: Mapping[str, Callable[[CommandLineWords], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}


def print_completion(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Print the script of a shell. Return the exit code."""
    shell = options.arguments["shell"]
    script = SCRIPTS[shell](command_line_words())
    if options.as_document:
        document = {"schema": SCHEMA, "shell": shell, "script": script}
        write_document({**document, "errors": [], "exit_code": 0}, options)
    else:
        write(script)
    return 0
