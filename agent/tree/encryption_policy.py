"""How many contexts of encrypted memory the operator lets a host have."""

from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from agent.conf import libvirt
from agent.model.encryption import EncryptionFacts, Technique

# Techniques that num_memory_encrypted_guests limits. The option is older than the others, whose
# limit the hardware states.
LIMITED: frozenset[Technique] = frozenset({"sev", "tdx"})


@dataclass(frozen=True, slots=True)
class EncryptionPolicy:
    """The operator's limits of encryption contexts."""

    guests: int | None = None
    """The most contexts of SEV and of TDX each; None: no limit configured."""
    tdx_guests: int | None = None
    """The most contexts of TDX; None: no limit configured."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy that the options set."""
        options = conf[libvirt.GROUP]
        return cls(options.num_memory_encrypted_guests, options.num_intel_tdx_guests)

    def contexts(self, facts: EncryptionFacts, technique: Technique) -> int:
        """Return how many contexts of the technique the host offers: the least of what host and
        operator say; 0 if neither sets a limit.
        """
        found = facts.contexts.get(technique, 0)
        if found == 0:
            return 0
        limits = (
            self.guests if technique in LIMITED else None,
            self.tdx_guests if technique == "tdx" else None,
        )
        return min((limit for limit in (found, *limits) if limit is not None), default=0)
