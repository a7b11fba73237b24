"""``agent schema NAME``: prints the JSON schema of a document that commands write."""

from oslo_config import cfg

from agent.api.document_schemas import PREFIX, VERSION, document_names, document_schema
from agent.cli.command import Options
from agent.cli.output import write, write_document
from agent.errors import ConfigError
from agent.model.names import printable


def show_schema(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Print the schema of a document; without a name, the names of all documents. Return the exit
    code.

    :raises ConfigError: there is no such document.
    """
    names, wanted = document_names(), options.arguments["name"]
    if wanted is None:
        if options.as_document:
            document = {"schema": f"{PREFIX}schema{VERSION}", "schemas": dict(names)}
            write_document({**document, "errors": [], "exit_code": 0}, options)
        else:
            width = max(map(len, names))
            write("".join(f"{name:{width}}  {what}\n" for name, what in names.items()))
        return 0
    name = wanted.removeprefix(PREFIX).removesuffix(VERSION)
    if name not in names:
        raise ConfigError(
            f"{printable(wanted)}: no document of that name",
            f"name one of {', '.join(names)}",
        )
    # A JSON schema in every format but YAML, because that is what it is.
    write_document(document_schema(name), options)
    return 0
