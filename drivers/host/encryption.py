"""By which techniques the host can encrypt the memory of guests, and how many contexts each has."""

from agent.errors import DriverError
from agent.model.encryption import (
    CAPACITIES,
    SWITCHES,
    EncryptionFacts,
    contexts,
    is_on,
    parse_capacities,
)
from agent.model.facts import PartialRead
from drivers.host.sysfs import Sysfs


def read_encryption(sysfs: Sysfs) -> PartialRead[EncryptionFacts | None]:
    """Return the techniques that are switched on, None if none is. The number of contexts is known
    only with the cgroup controller ``misc``.
    """
    try:
        on = [technique for technique, path in SWITCHES.items() if _is_on(sysfs, path)]
        capacities = _capacities(sysfs) if on else {}
    except DriverError as error:
        return PartialRead(None, (error.message,))
    return PartialRead(
        EncryptionFacts({technique: contexts(technique, capacities) for technique in on})
        if on
        else None
    )


def _is_on(sysfs: Sysfs, path: str) -> bool:
    try:
        return is_on(sysfs.optional_text(path))
    except ValueError as error:
        raise sysfs.fault(path, str(error)) from error


def _capacities(sysfs: Sysfs) -> dict[str, int] | None:
    for path in CAPACITIES:
        text = sysfs.optional_text(path)
        if text is not None:
            try:
                return parse_capacities(text)
            except ValueError as error:
                raise sysfs.fault(path, str(error)) from error
    return None
