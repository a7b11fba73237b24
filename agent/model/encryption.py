"""Guests with encrypted memory: by which techniques the host can have them, and how many at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Technique = Literal["sev", "sev_es", "sev_snp", "tdx"]


@dataclass(frozen=True, slots=True)
class EncryptionFacts:
    """``contexts``: each technique that is switched on, with how many guests it can have; None if the host does not say.

    SEV-ES and SEV-SNP share their contexts: both are given all that there are.
    """

    contexts: Mapping[Technique, int | None] = field(default_factory=dict)
