"""The metadata object of all tables of the store, and the column type for text from outside."""

import re

from sqlalchemy import Dialect, MetaData, Text
from sqlalchemy.types import TypeDecorator

_ESCAPED = re.compile(r"\\(.)")


class _WithoutNul(TypeDecorator[str]):
    """A text type that stores the character NUL, which PostgreSQL's text cannot hold."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.replace("\\", r"\\").replace("\0", r"\0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return (
            None
            if value is None
            else _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], value)
        )


OUTSIDE_TEXT = Text().with_variant(_WithoutNul(), "postgresql")


METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)
