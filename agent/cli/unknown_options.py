"""Options and sections in the files of a configuration that nobody reads, and what may have been meant by them."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from oslo_config import cfg

from agent.cli.catalogue import WITH_KEYSTONEAUTH, plugin_options
from agent.cli.config_files import REPLACED, ConfigFile, Value, read_all
from agent.cli.options import Source
from agent.model.names import printable

LOG = logging.getLogger(__name__)

Known = Mapping[str, Collection[str]]
"""Names of options by section."""

# By one of these a file is known as nova's. What nova shares with other services or with the agent says nothing.
_ONLY_NOVAS = frozenset({
    "api_database", "barbican_service_user", "cinder", "cells", "conductor", "console", "consoleauth", "cyborg", "ephemeral_storage_encryption",
    "filter_scheduler", "glance", "guestfs", "hyperv", "key_manager", "keystone_authtoken", "manila", "metrics", "mks", "notifications",
    "os_vif_linux_bridge", "os_vif_ovs", "osapi_v21", "powervm", "quota", "rdp", "remote_debug", "scheduler", "serial_console", "service_user", "spice",
    "upgrade_levels", "vendordata_dynamic_auth", "vif_plug_linux_bridge_privileged", "vif_plug_ovs_privileged", "vmware", "vnc", "xenserver", "zvm",
})  # fmt: skip
# What other names of files and folders say the same.
_NOVAS_FOLDERS = ("nova.conf.d",)
# How much alike two names must be. A file of nova's has hundreds of options that are not ours, and some are much like ours.
_LIKE, _VERY_LIKE, _SHORTEST = 0.7, 0.82, 5
# Sections that belong to libraries, which read them themselves if they are used.
_LIBRARIES = ("oslo_", "profiler", "privsep", "source_")
# Sections that are read if an option lists what they are about: by the beginning of their names.
_LISTED = {
    "neutron_physnet_": ("physical network", "[neutron] physnets"),
    "mdev_": ("type", "[devices] enabled_mdev_types"),
    "vgpu_": ("type", "[devices] enabled_mdev_types"),
}
# What operators may look for in sections that other services have.
_INSTEAD = {"database": "the store's URL is [store] connection"}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A section, or an option in one, that nobody reads."""

    file: str
    line: int
    section: str
    option: str | None
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"

    @property
    def message(self) -> str:
        """Where it stands, and what is wrong."""
        return f"{printable(self.file)}:{self.line}: [{printable(self.section)}]{f' {printable(self.option)}' if self.option else ''}: {self.what}"


def warn_of_unknown(conf: cfg.ConfigOpts, *, complete: bool = True) -> None:
    """Log what nobody reads in the files of ``conf``. ``complete``: see :func:`unknown_options`."""
    files, _ = read_all(Source(Path(file)) for file in conf.config_file)
    for one in unknown_options(conf, files, complete=complete):
        LOG.warning("%s", one)


def unknown_options(conf: cfg.ConfigOpts, files: Sequence[ConfigFile], *, complete: bool = True) -> list[Unknown]:
    """Everything in ``files`` that nobody reads; of files of nova's only what is much like something that is read.

    ``complete``: driver and monitors have said what they read. If not, a whole section may be theirs.
    """
    known, names = _registered(conf)
    return [one for file in files for one in _Reader(file, known, names, complete=complete).unknown()]


def _registered(conf: cfg.ConfigOpts) -> tuple[Known, Known]:
    """What is read, deprecated names included, and without these."""
    known: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    # oslo.config shows deprecated names of options that others have registered nowhere else.
    for info, group in conf._all_opt_infos():
        option, section = info["opt"], _section(group.name if group else None)
        names[section].add(option.dest)
        known[section].add(option.dest)
        for old in option.deprecated_opts:
            name = old.name or option.dest
            known[_section(old.group or section)] |= {name, name.replace("-", "_")}
    return known, names


def _section(group: str | None) -> str:
    return "DEFAULT" if group in (None, "DEFAULT") else str(group).lower()


def is_novas(file: ConfigFile) -> bool:
    """Whether the file is one that nova reads."""
    by_name = file.path.name.startswith("nova") or file.path.parent.name in _NOVAS_FOLDERS
    return by_name or not _ONLY_NOVAS.isdisjoint(file.sections)


class _Reader:
    """What in one file nobody reads."""

    def __init__(self, file: ConfigFile, known: Known, names: Known, *, complete: bool) -> None:
        self._file, self._known, self._names, self._complete = file, known, names, complete
        self._novas = is_novas(file)

    def unknown(self) -> Iterator[Unknown]:
        for section, options in self._file.sections.items():
            if section in self._known:
                yield from self._options(section, options)
            elif not section.startswith(_LIBRARIES) and (found := self._unknown_section(section)) is not None:
                yield found

    def _unknown_section(self, section: str) -> Unknown | None:
        listed = next((one for one in _LISTED if section.startswith(one)), None)
        likely = self._like(section, self._known) if listed is None else None
        if likely is None and (self._novas or not (self._complete or listed)):
            return None
        if listed is not None:
            noun, option = _LISTED[listed]
            what, remedy = f"no such {noun} is listed", f"add {printable(section.removeprefix(listed))} to {option}, or remove the section"
        else:
            what, remedy = "there is no such section", _INSTEAD.get(section, "remove it")
        if likely is not None:
            what, remedy = f"{what}: did you mean [{likely}]?", f"write [{likely}], or remove the section"
        return Unknown(str(self._file.path), self._file.lines.get(section, 1), section, None, what, remedy)

    def _options(self, section: str, options: Mapping[str, Sequence[Value]]) -> Iterator[Unknown]:
        known, names = self._known[section], self._names.get(section, ())
        missing = {name: values for name, values in options.items() if name not in known and name != REPLACED}
        # Looked for only now, because loading all plugins takes a while.
        if missing and ("auth_type" in known or section in WITH_KEYSTONEAUTH):
            of_others = {option.dest for option in plugin_options(())}
            missing = {name: values for name, values in missing.items() if name not in of_others}
        for name, values in missing.items():
            likely, elsewhere = self._like(name, names), self._elsewhere(name)
            if likely is not None:
                what, remedy = f"there is no such option: did you mean {likely}?", f"write {likely}, or remove it"
            elif self._novas:
                continue
            elif elsewhere:
                what, remedy = f"there is no such option here: did you mean that of [{elsewhere}]?", f"put it into [{elsewhere}], or remove it"
            else:
                what, remedy = "there is no such option", "remove it; docs/configuration.md and agent.conf.sample have all that there are"
            yield Unknown(str(self._file.path), values[0].line, section, name, what, remedy)

    def _elsewhere(self, name: str) -> str:
        """The first other section that has an option of this name."""
        return next((section for section, names in sorted(self._names.items()) if name in names), "")

    def _like(self, name: str, names: Collection[str]) -> str | None:
        wanted = name.lower().replace("-", "_")
        for one in names:
            if one.lower() == wanted:
                return one
        if self._novas and len(wanted) < _SHORTEST:
            return None
        (likely,) = get_close_matches(wanted, sorted(names), n=1, cutoff=_VERY_LIKE if self._novas else _LIKE) or (None,)
        return likely
