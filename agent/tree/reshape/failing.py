"""The error of a move that cannot be made, with those who are in the way."""

from collections.abc import Iterable

from agent.errors import ReshapeFailed

MAX_NAMED = 5


def failed(what: str, consumers: Iterable[str], remedy: str) -> ReshapeFailed:
    """``what`` is wrong because of ``consumers``, of whom the message names the first."""
    users = sorted(set(consumers))
    more = f" and {len(users) - MAX_NAMED} more" if len(users) > MAX_NAMED else ""
    return ReshapeFailed(f"{what} by {', '.join(users[:MAX_NAMED])}{more}", remedy, consumer=users[0], consumers=tuple(users))
