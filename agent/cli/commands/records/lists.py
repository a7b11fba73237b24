"""``agent claims`` and ``agent migrations``."""

from dataclasses import replace

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.record_lists import listed, show
from agent.errors import ConfigError
from agent.model.migration import ENDED
from agent.model.names import printable
from agent.render.records import claim_lines, migration_lines


def list_claims(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the claims that count, all or those of one instance.

    :raises AgentError: neither daemon nor store tell, or the instance has none.
    """
    instance = options.arguments["instance"]
    found = listed(conf, options, "claims", {"instance": instance} if instance else {})
    if instance and not (found.documents or found.damaged):
        raise ConfigError(f"--instance {printable(instance)}: no claim of such an instance counts", "agent claims lists those that do, with their instances")
    return show(options, "claims", found, claim_lines)


def list_migrations(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the migrations, all or those that are not over.

    :raises AgentError: neither daemon nor store tell.
    """
    found = listed(conf, options, "migrations", {})
    shown = [one for one in found.documents if options.arguments["all"] or one["status"] not in ENDED]
    return show(options, "migrations", replace(found, documents=shown), migration_lines)
