"""Builds the real Placement: its WSGI application and an empty database with its schema, traits and classes."""

import contextlib
import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

from oslo_config import cfg
from oslo_db.sqlalchemy import enginefacade
from placement import conf as placement_conf
from placement import db_api, deploy, microversion, policy
from placement.db.sqlalchemy import migration
from placement.objects import resource_class, trait


WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Any]

ONE_AT_A_TIME = threading.RLock()
"""Held by whoever has changed Placement's process-wide state (database, version list)."""


def configuration(*files: str) -> cfg.ConfigOpts:
    """Placement's options from these files only; without one, an in-memory database and no keystone."""
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    if not files:
        conf.set_override("connection", "sqlite://", group="placement_database")
        conf.set_override("auth_strategy", "noauth2", group="api")
    conf([], project="placement", default_config_files=list(files), default_config_dirs=[])
    return conf


@functools.cache
def application(max_version: str | None = None) -> WSGIApp:
    """Placement's WSGI application without a database of its own: call it inside ``serving_from``."""
    conf = configuration()
    with capped(max_version):
        app: WSGIApp = deploy.deploy(conf)
    policy.init(conf)
    return app


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
    """Inside, Placement works on the database of ``manager``, whatever else this process configured for it."""
    with ONE_AT_A_TIME:
        undo = db_api.placement_context_manager.patch_factory(manager)
        try:
            yield
        finally:
            undo()


def memory_database() -> Any:
    """An empty in-memory database as oslo.db's context manager; one connection, shared by all threads."""
    manager = enginefacade.transaction_context()
    manager.configure(connection="sqlite://", max_retries=0)
    copy_template(connection_of(manager))
    return manager


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
    manager.configure(connection="sqlite://", max_retries=0)
    with serving_from(manager), _unsynchronised():
        migration.create_schema(manager.writer.get_engine())
        context = db_api.DbContext()
        trait.ensure_sync(context)
        resource_class.ensure_sync(context)
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    connection_of(manager).backup(copy)
    return copy


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
