"""Builds the real Placement: its WSGI application and an empty database with its schema, traits and
classes.
"""

import contextlib
import functools
import gc
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from oslo_config import cfg
from oslo_db.sqlalchemy import enginefacade
from placement import conf as placement_conf
from placement import db_api, deploy, microversion, policy, util
from placement.db.sqlalchemy import migration
from placement.handlers import trait as trait_handler
from placement.objects import resource_class, trait

from tests.support.ini import write_config

WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Any]

ADMIN_ONLY_TOKEN = "admin"
"""The token of a user without the role service, to whom Placement itself gives the role admin."""

ONE_AT_A_TIME = threading.RLock()
"""Held by whoever has changed Placement's process-wide state (database, version list)."""


def _validate(instance: Any, schema: dict[str, Any], **options: Any) -> None:
    """Validate as ``jsonschema.validate`` does, but do not check the schema itself.

    Because Placement has its own schemas checked for each request, which took an eighth of the
    tests' time.
    """
    validator = jsonschema.validators.validator_for(schema)(schema, **options)
    if (error := best_match(validator.iter_errors(instance))) is not None:
        raise error


for module in (util, trait_handler):
    module.jsonschema = SimpleNamespace(
        validate=_validate,
        ValidationError=jsonschema.ValidationError,
        FormatChecker=jsonschema.FormatChecker,
    )


def configuration(file: Path) -> cfg.ConfigOpts:
    """Placement's options from this file only.

    A file and not overrides, because Placement's option groups are objects of the process, and an
    override of one configuration would be one of all.
    """
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf([], project="placement", default_config_files=[str(file)], default_config_dirs=[])
    return conf


@functools.cache
def application(max_version: str | None = None) -> WSGIApp:
    """Placement's WSGI application without a database of its own: call it inside
    ``serving_from``.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "placement.conf"
        conf = configuration(
            write_config(
                file,
                {
                    "placement_database": {"connection": "sqlite://"},
                    "api": {"auth_strategy": "noauth2"},
                },
            )
        )
    with capped(max_version):
        app: WSGIApp = deploy.deploy(conf)
    policy.init(conf)
    # What this has imported, as in tests/conftest.py.
    gc.collect()
    gc.freeze()
    return with_roles(app)


def with_roles(app: WSGIApp) -> WSGIApp:
    """Let any token but ``ADMIN_ONLY_TOKEN`` have the role service too, unless the request names
    its roles itself.

    Without keystone Placement takes roles from a header, which a configuration file cannot set.
    """

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ.get("HTTP_X_AUTH_TOKEN") not in (None, ADMIN_ONLY_TOKEN):
            environ.setdefault("HTTP_X_ROLES", "admin,service")
        return app(environ, start_response)

    return wrapped


@contextlib.contextmanager
def capped(max_version: str | None) -> Iterator[None]:
    """Inside, Placement is a release whose highest microversion is ``max_version``."""
    known = microversion.VERSIONS
    with ONE_AT_A_TIME:
        if max_version is not None:
            microversion.VERSIONS = known[: known.index(max_version) + 1]
        try:
            yield
        finally:
            microversion.VERSIONS = known


@contextlib.contextmanager
def serving_from(manager: Any) -> Iterator[None]:
    """Inside, Placement works on the database of ``manager``, whatever else this process configured
    for it.
    """
    with ONE_AT_A_TIME:
        undo = db_api.placement_context_manager.patch_factory(manager)
        try:
            yield
        finally:
            undo()


def memory_database() -> Any:
    """An empty in-memory database as oslo.db's context manager; one connection, shared by all
    threads. If possible one that was given back, because an engine that has compiled Placement's
    statements answers in two thirds of the time.
    """
    with ONE_AT_A_TIME:
        while _GIVEN_BACK:
            manager = _GIVEN_BACK.pop()
            # A cursor that nobody has finished keeps the database locked.
            with contextlib.suppress(sqlite3.Error):
                connection = connection_of(manager)
                connection.rollback()
                connection.deserialize(_template_bytes())
                return manager
            manager.writer.get_engine().dispose()
    manager = enginefacade.transaction_context()
    # Another connection would be another database, an empty one, whatever the clock says.
    manager.configure(connection="sqlite://", max_retries=0, connection_recycle_time=-1)
    copy_template(connection_of(manager))
    return manager


_GIVEN_BACK: list[Any] = []


def give_back(manager: Any) -> None:
    """Let another server have this ``memory_database``."""
    _GIVEN_BACK.append(manager)


def connection_of(manager: Any) -> sqlite3.Connection:
    """The one connection of a ``memory_database``."""
    pooled = manager.writer.get_engine().raw_connection()
    connection: sqlite3.Connection = pooled.driver_connection
    pooled.close()
    return connection


def copy_template(target: sqlite3.Connection) -> None:
    """Replace what is in ``target`` by Placement's empty database, in one transaction."""
    with ONE_AT_A_TIME:
        _template().backup(target)


@functools.cache
def _template() -> sqlite3.Connection:
    manager = enginefacade.transaction_context()
    # Another connection would be another database, an empty one, whatever the clock says.
    manager.configure(connection="sqlite://", max_retries=0, connection_recycle_time=-1)
    with serving_from(manager), _unsynchronised():
        migration.create_schema(manager.writer.get_engine())
        context = db_api.DbContext()
        trait.ensure_sync(context)
        resource_class.ensure_sync(context)
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    connection_of(manager).backup(copy)
    return copy


@functools.cache
def _template_bytes() -> bytes:
    return _template().serialize()


@contextlib.contextmanager
def _unsynchronised() -> Iterator[None]:
    """Inside, Placement fills in the standard names; afterwards it remembers what it did before.

    Because it does so once a process, it would else leave out the template or another database.
    """
    before = trait._TRAITS_SYNCED, resource_class._RESOURCE_CLASSES_SYNCED
    trait._TRAITS_SYNCED = resource_class._RESOURCE_CLASSES_SYNCED = False
    try:
        yield
    finally:
        trait._TRAITS_SYNCED, resource_class._RESOURCE_CLASSES_SYNCED = before
