"""Distributions of drivers, installed into a folder of their own as pip would, for PYTHONPATH or ``sys.path``."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, drivers: Mapping[str, str]) -> Path:
    """Install the distribution ``name`` with drivers, by name the ``module:class``; the folder for the path."""
    site = folder / "site"
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[compute_node_agent.drivers]", *(f"{driver} = {target}" for driver, target in drivers.items()), ""]))
    return site
