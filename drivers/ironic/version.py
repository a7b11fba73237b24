"""A version of ironic's API."""

from typing import NamedTuple, Self


class ApiVersion(NamedTuple):
    """Compared by number, so that 1.109 is later than 1.82."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """From ``1.46``.

        :raises ValueError: it is none.
        """
        major, minor = text.split(".")
        return cls(int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"
