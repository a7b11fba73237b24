"""Sphinx configuration."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes

# For reference.py, and for the agent itself.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

project = "compute-node-agent"
copyright = "the compute-node-agent authors, Apache-2.0"
extensions = ["myst_parser", "oslo_config.sphinxext", "reno.sphinxext", "reference"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "alabaster"
html_theme_options = {
    "description": "Keeps OpenStack Placement true for a hypervisor",
    "fixed_sidebar": True,
}
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples", "man"]
# Built by tox -e genconfig into docs/man, and committed, because building the wheel must not need
# Sphinx.
man_pages = [
    ("command-line", "agent", "keeps OpenStack Placement true for a hypervisor", "", 1),
    ("configuration", "agent.conf", "the configuration of compute-node-agent", "", 5),
]
# Without the date of the build, so that the same text gives the same page.
today = " "


def setup(app: Any) -> None:
    """Have a man page name other pages in italics, because a link would lead nowhere."""
    app.connect("doctree-resolved", _unlinked)


def _unlinked(app: Any, doctree: nodes.document, _page: str) -> None:
    if app.builder.name == "man":
        for link in list(doctree.findall(nodes.reference)):
            if link.get("internal"):
                link.replace_self(nodes.emphasis("", "", *link.children))
