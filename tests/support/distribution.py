"""Distributions of plug-ins, installed into a folder of their own as pip would, for PYTHONPATH or
``sys.path``.
"""

from collections.abc import Mapping
from pathlib import Path

from agent.driver.interface import NAMESPACE


def install(folder: Path, name: str, plugins: Mapping[str, str], group: str = NAMESPACE) -> Path:
    """Install the distribution ``name`` with plug-ins, drivers unless said otherwise, by name the
    ``module:class``; the folder for the path.
    """
    site = folder / "site"
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "\n".join(
            [f"[{group}]", *(f"{plugin} = {target}" for plugin, target in plugins.items()), ""]
        )
    )
    return site
