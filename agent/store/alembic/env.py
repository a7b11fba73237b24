"""The script that alembic runs for a migration: on the connection that it is given, in that
connection's transaction.
"""

from alembic import context

from agent.store.metadata import METADATA
from agent.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
