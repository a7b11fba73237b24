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
    """``guests``: the most that SEV or TDX may have, ``tdx_guests`` that TDX may, None if the
    operator does not say.
    """

    guests: int | None = None
    tdx_guests: int | None = None

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """The policy that the options say."""
        options = conf[libvirt.GROUP]
        return cls(options.num_memory_encrypted_guests, options.num_intel_tdx_guests)

    def contexts(self, facts: EncryptionFacts, technique: Technique) -> int:
        """How many contexts of the technique the host offers: the least of what host and operator
        say, none if neither does.
        """
        found = facts.contexts.get(technique, 0)
        if found == 0:
            return 0
        limits = (
            self.guests if technique in LIMITED else None,
            self.tdx_guests if technique == "tdx" else None,
        )
        return min((one for one in (found, *limits) if one is not None), default=0)
