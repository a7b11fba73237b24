"""How many contexts of encrypted memory the operator lets a host have."""

from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from agent.conf import libvirt
from agent.model.encryption import EncryptionFacts, Technique

# The option is older than the other techniques, whose contexts the hardware is asked for.
LIMITED: frozenset[Technique] = frozenset({"sev", "tdx"})


@dataclass(frozen=True, slots=True)
class EncryptionPolicy:
    """``guests``: the most that SEV or TDX may have, None if the operator does not say."""

    guests: int | None = None

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """The policy that the options say."""
        return cls(conf[libvirt.GROUP].num_memory_encrypted_guests)

    def contexts(self, facts: EncryptionFacts, technique: Technique) -> int:
        """How many contexts of the technique the host offers: the least of what host and operator say, none if neither does."""
        found = facts.contexts.get(technique, 0)
        limit = self.guests if technique in LIMITED else None
        if found == 0:
            return 0
        return min((one for one in (found, limit) if one is not None), default=0)
