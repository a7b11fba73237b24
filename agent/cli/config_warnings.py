"""Warnings of settings that are valid but may not be meant: options and sections that no part of
the agent reads, with the name that may have been meant; and what other users of the host could read
or change: files with secrets, the store's folder, the metrics listener.
"""

import logging
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from oslo_config import cfg

from agent.api.socket_file import metrics_warning
from agent.cli.config_files import ConfigFile, Value, is_novas_section
from agent.cli.configuration import WITH_KEYSTONEAUTH, files_of, plugin_options
from agent.model.names import printable

LOG = logging.getLogger(__name__)

Known = Mapping[str, Collection[str]]
"""Names of options by section."""

# The similarity of two names, 0 to 1. nova's files have hundreds of options that the agent does not
# read, some of them similar to the agent's.
_LIKE, _VERY_LIKE, _SHORTEST = 0.7, 0.82, 5
# Sections of libraries, which read them themselves.
_LIBRARIES = ("oslo_", "profiler", "privsep", "source_")
# Sections that are read if an option lists their subject, by the beginning of their names.
_LISTED = {
    "neutron_physnet_": ("physical network", "[neutron] physnets"),
    "mdev_": ("type", "[devices] enabled_mdev_types"),
    "vgpu_": ("type", "[devices] enabled_mdev_types"),
}
# oslo.config's variables; those of OpenStack clients have single underscores.
_VARIABLE = re.compile(r"OS_(?P<section>.+?)__(?P<option>.+)")
_ALL_THERE_ARE = "docs/configuration.md and agent.conf.sample have all that there are"
# Remedies for sections that other services have.
_INSTEAD = {"database": "the store's URL is [store] connection"}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A section, or an option in a section, that no part of the agent reads."""

    file: str | None
    """None in the environment."""
    line: int | None
    """None in the environment."""
    section: str
    option: str | None
    what: str
    remedy: str
    variable: str | None = None
    """The environment variable; None in a file."""

    def __str__(self) -> str:
        question = self.what.endswith("?")
        return f"{self.message}{'' if question else ':'} {self.remedy}"

    @property
    def message(self) -> str:
        """The place, and what is wrong."""
        if self.file is None:
            return f"environment variable {printable(str(self.variable))}: {self.what}"
        return (
            f"{printable(self.file)}:{self.line}: "
            f"[{printable(self.section)}]{f' {printable(self.option)}' if self.option else ''}: "
            f"{self.what}"
        )


def warn_of_unknown(conf: cfg.ConfigOpts, *, complete: bool = True) -> None:
    """Log every unknown option in the files of ``conf`` and in the environment. ``complete``: see
    :func:`unknown_options`.
    """
    for unknown in unknown_options(conf, complete=complete):
        LOG.warning("%s", unknown)


def unknown_options(
    conf: cfg.ConfigOpts,
    *,
    complete: bool = True,
    environ: Collection[str] = os.environ.keys(),
) -> list[Unknown]:
    """Return the unknown options and sections of the files and of the environment.

    Of nova's files, only names that are similar to known ones are returned. Of the environment,
    only variables whose section is known or similar to a known one, because others are meant for
    other programs.

    ``complete``: driver and monitors have registered their options. If not, an unknown section may
    be theirs.
    """
    known, names = _registered(conf)
    files = files_of(conf)
    in_files = [
        unknown
        for file in files
        for unknown in _Reader(file, known, names, complete=complete).unknown()
    ]
    return [
        *in_files,
        *_unknown_variables(environ, names, novas=any(file.is_novas for file in files)),
    ]


def _registered(conf: cfg.ConfigOpts) -> tuple[Known, Known]:
    """Return the known options, with deprecated names and without."""
    known: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    # Only here does oslo.config show the deprecated names of options that libraries have
    # registered.
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


def _variable(section: str, option: str) -> str:
    return f"OS_{section.upper()}__{option.upper()}"


def _unknown_variables(environ: Collection[str], names: Known, *, novas: bool) -> Iterator[Unknown]:
    """Yield the variables that look like the agent's options but are none. ``novas``: the
    configuration files are nova's, and so may the variables be.
    """
    read = {_variable(section, option) for section, options in names.items() for option in options}
    for variable in sorted(set(environ) - read):
        if (found := _VARIABLE.fullmatch(variable)) is None:
            continue
        named, option = found["section"], found["option"].lower()
        section = "DEFAULT" if named.upper() == "DEFAULT" else named.lower()
        if section in names:
            meant, what = section, "there is no such option"
            options = names[section]
            if option not in options and option in _plugin_option_names(section, options):
                continue
        elif (
            is_novas_section(section)
            or section.startswith(_LIBRARIES)
            or (likely := _similar_name(section, names, novas=novas)) is None
        ):
            continue
        else:
            meant, what = likely, "there is no such section"
        likely_option = _similar_name(option, names[meant], novas=novas)
        if likely_option is not None or meant != section:
            right = _variable(meant, likely_option or option)
            yield Unknown(
                None,
                None,
                section,
                option,
                f"{what}: did you mean {printable(right)}?",
                "set that instead, or unset it",
                variable,
            )
        elif not novas:
            yield Unknown(
                None, None, section, option, what, f"unset it; {_ALL_THERE_ARE}", variable
            )


def _plugin_option_names(section: str, known: Collection[str]) -> Collection[str]:
    """Return the options of all authentication plugins if the section may have them. Loading the
    plugins takes a while.
    """
    return (
        {option.dest for option in plugin_options(())}
        if "auth_type" in known or section in WITH_KEYSTONEAUTH
        else ()
    )


def _similar_name(name: str, names: Collection[str], *, novas: bool) -> str | None:
    """Return the name of ``names`` that ``name`` may be meant for; None if none is similar."""
    wanted = name.lower().replace("-", "_")
    for known in names:
        if known.lower() == wanted:
            return known
    if novas and len(wanted) < _SHORTEST:
        return None
    (likely,) = get_close_matches(
        wanted, sorted(names), n=1, cutoff=_VERY_LIKE if novas else _LIKE
    ) or (None,)
    return likely


class _Reader:
    """Finds what is not read in one file."""

    def __init__(self, file: ConfigFile, known: Known, names: Known, *, complete: bool) -> None:
        self._file, self._known, self._names, self._complete = file, known, names, complete
        self._novas = file.is_novas

    def unknown(self) -> Iterator[Unknown]:
        for section, options in self._file.sections.items():
            if section in self._known:
                yield from self._options(section, options)
            elif (
                not section.startswith(_LIBRARIES)
                and (found := self._unknown_section(section)) is not None
            ):
                yield found

    def _unknown_section(self, section: str) -> Unknown | None:
        listed = next((prefix for prefix in _LISTED if section.startswith(prefix)), None)
        likely = _similar_name(section, self._known, novas=self._novas) if listed is None else None
        if likely is None and (self._novas or not (self._complete or listed)):
            return None
        if listed is not None:
            noun, option = _LISTED[listed]
            what, remedy = (
                f"no such {noun} is listed",
                f"add {printable(section.removeprefix(listed))} to {option}, or remove the section",
            )
        else:
            what, remedy = "there is no such section", _INSTEAD.get(section, "remove it")
        if likely is not None:
            what, remedy = (
                f"{what}: did you mean [{likely}]?",
                "write it so, or remove the section",
            )
        return Unknown(
            str(self._file.path), self._file.lines.get(section, 1), section, None, what, remedy
        )

    def _options(self, section: str, options: Mapping[str, Sequence[Value]]) -> Iterator[Unknown]:
        known, names = self._known[section], self._names.get(section, ())
        missing = {name: values for name, values in options.items() if name not in known}
        if missing and (of_others := _plugin_option_names(section, known)):
            missing = {name: values for name, values in missing.items() if name not in of_others}
        for name, values in missing.items():
            likely, elsewhere = _similar_name(name, names, novas=self._novas), self._elsewhere(name)
            if likely is not None:
                what, remedy = (
                    f"there is no such option: did you mean {likely}?",
                    "write it so, or remove it",
                )
            elif self._novas:
                continue
            elif elsewhere:
                what, remedy = (
                    f"there is no such option here: did you mean that of [{elsewhere}]?",
                    "put it there, or remove it",
                )
            else:
                what, remedy = "there is no such option", f"remove it; {_ALL_THERE_ARE}"
            yield Unknown(str(self._file.path), values[0].line, section, name, what, remedy)

    def _elsewhere(self, name: str) -> str:
        """Return the first other section with an option of this name; empty if there is none."""
        return next(
            (section for section, names in sorted(self._names.items()) if name in names), ""
        )


_SECRET = re.compile(
    r"password|secret|token(_id)?$|passcode|assertion|^fixed_key$|role_id$", re.IGNORECASE
)
# Names with such words whose values are no secrets: which secret, how it is kept, how long it is.
_NO_SECRET = re.compile(r"_uuid$|_security$|_length$", re.IGNORECASE)
_SWITCH = re.compile(r"true|false|yes|no|on|off|[0-9]", re.IGNORECASE)
# In an HTTP URL a user name without a password may be a token; databases and hypervisors are often
# accessed by a user without a password.
_URL_WITH_SECRET = re.compile(r"://[^/\s]*:[^/\s]+@|https?://[^/\s]+@")


def exposures(conf: cfg.ConfigOpts) -> list[str]:
    """Return the warnings of what others could read or change, one line each."""
    listener = metrics_warning(conf)
    return [
        *_of_folder(Path(conf.store.path)),
        *(line for file in files_of(conf) for line in _of_file(file)),
        *([listener] if listener else []),
    ]


def _of_folder(folder: Path) -> Iterator[str]:
    """Yield a warning if others can write the store's folder or a folder above it: they could
    replace store, identity and lock.
    """
    for path in (folder, *folder.absolute().parents):
        try:
            status = path.stat()
        except OSError:
            # It does not exist yet, or the code that needs it reports the error.
            continue
        name = printable(str(path))
        if path == folder and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield f"[store] path: {name} can be written by others than its owner: chmod go-w {name}"
        elif path != folder and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            yield f"[store] path: {name}, above it, can be written by everybody: chmod o-w {name}"
        if path == folder and status.st_uid not in (0, os.geteuid()):
            yield (
                f"[store] path: {name} belongs to uid {status.st_uid}, not to the agent's own, "
                f"{os.geteuid()}: chown {os.geteuid()} {name}"
            )


def _of_file(file: ConfigFile) -> Iterator[str]:
    try:
        readable = file.path.stat().st_mode & stat.S_IROTH
    except OSError:
        return
    secrets = _secrets(file) if readable else []
    if secrets:
        name = printable(str(file.path))
        yield f"{name} can be read by everybody, and holds {', '.join(secrets)}: chmod o-r {name}"


def _secrets(file: ConfigFile) -> list[str]:
    """Return the names of the file's options that have a secret as value; not the secrets."""
    return [
        printable(f"[{section}] {name}")
        for section, options in file.sections.items()
        for name, values in options.items()
        if any(_URL_WITH_SECRET.search(value) for value in values)
        or (
            _SECRET.search(name)
            and not _NO_SECRET.search(name)
            and any(value and not _SWITCH.fullmatch(value) for value in values)
        )
    ]
