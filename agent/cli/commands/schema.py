"""``agent schema`` and ``agent completion``: what other programs need to know of the command line:
the JSON schemas of the documents that commands write, and the scripts by which shells complete it.
"""

import site
import sys
from pathlib import Path

from oslo_config import cfg

import agent
from agent.api.openapi import PREFIX, VERSION, document_names, document_schema
from agent.cli.command import Commands, Options
from agent.cli.output import answer, write_document
from agent.errors import ConfigError
from agent.model.names import printable


def show_schema(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Print the schema of a document; without a name, the names of all documents. Return the exit
    code.

    :raises ConfigError: there is no such document.
    """
    names, wanted = document_names(), options.arguments["name"]
    if wanted is None:
        width = max(map(len, names))
        text = "".join(f"{name:{width}}  {what}\n" for name, what in names.items())
        return answer(options, f"{PREFIX}schema{VERSION}", {"schemas": dict(names)}, text)
    name = wanted.removeprefix(PREFIX).removesuffix(VERSION)
    if name not in names:
        raise ConfigError(
            f"{printable(wanted)}: no document of that name",
            f"name one of {', '.join(names)}",
        )
    # A JSON schema in every format but YAML, because that is what it is.
    write_document(document_schema(name), options)
    return 0


COMPLETION = f"{PREFIX}completion{VERSION}"
SCRIPTS = {
    "bash": ("etc/completion/bash/agent", "share/bash-completion/completions/agent"),
    "zsh": (
        "etc/completion/zsh/_agent",
        "share/zsh/site-functions/_agent",
        "share/zsh/vendor-completions/_agent",
    ),
    "fish": ("etc/completion/fish/agent.fish", "share/fish/vendor_completions.d/agent.fish"),
}
"""Where each shell's script is in a checkout, and where installations have it."""


def print_completion(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Print the script of a shell, which ships with the package. Return the exit code.

    :raises ConfigError: the package was installed without it.
    """
    shell = options.arguments["shell"]
    # Of a checkout or a folder of libraries, an environment, a user, a distribution.
    roots = (
        Path(agent.__file__).parents[1],
        Path(sys.prefix),
        Path(site.getuserbase()),
        Path("/usr"),
    )
    places = [root / place for root in roots for place in SCRIPTS[shell]]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise ConfigError(
            f"the package is installed without {SCRIPTS[shell][1]}",
            "install it again, from its wheel",
        )
    script = file.read_text(encoding="utf-8")
    return answer(options, COMPLETION, {"shell": shell, "script": script}, script)


RUN: Commands = {
    ("schema",): show_schema,
    ("completion",): print_completion,
}
