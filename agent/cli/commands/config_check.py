"""``agent config check``: everything wrong with the configuration, at once."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent import driver
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.desired.policy import Policy
from agent.errors import ConfigError, ConfigErrors, StoreError
from agent.placement.connect import http, wants_embedded
from agent.store.location import located

SCHEMA = "compute-node-agent/config-check/1"


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check what loading alone does not.

    :raises ConfigErrors: everything that is wrong.
    """
    errors = list(_wrong(conf))
    if errors:
        raise ConfigErrors(errors)
    files = list(conf.config_file)
    if options.format == "json":
        write_document({"schema": SCHEMA, "files": files, "errors": [], "exit_code": 0})
    else:
        write(f"nothing wrong in {', '.join(files) if files else 'the defaults: no configuration file was found'}\n")
    return 0


def _wrong(conf: cfg.ConfigOpts) -> Iterator[ConfigError]:
    for check in (Policy.from_options, _driver, _store, _placement):
        try:
            check(conf)
        except ConfigErrors as found:
            yield from found.errors
        except ConfigError as error:
            yield error
        except StoreError as error:
            yield ConfigError(error.message, error.remedy)


def _driver(conf: cfg.ConfigOpts) -> None:
    if conf.compute_driver:
        driver.load(conf.compute_driver, conf)


def _store(conf: cfg.ConfigOpts) -> None:
    located(Path(conf.store.path), conf.store.connection)


def _placement(conf: cfg.ConfigOpts) -> None:
    """Make a client, which sends nothing."""
    if not wants_embedded(conf, daemon=False):
        http(conf, Event())
