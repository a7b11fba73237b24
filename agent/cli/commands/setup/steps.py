"""The steps of ``agent setup``: what a run writes and removes below a root folder, planned as a
whole and then carried out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from agent.cli.commands.setup.manifest import (
    MANIFEST,
    Manifest,
    content_hash,
    write_manifest,
)
from agent.cli.commands.setup.root_folder import PLAIN_FOLDER, RootFolder
from agent.cli.commands.setup.shipped import (
    FOLDERS,
    PACKAGED_UNIT,
    UNIT,
    UNITS,
    ShippedFile,
    read_shipped,
)
from agent.errors import ConfigError, ConfigErrors, gathering

SetupAction = Literal["write", "replace", "remove", "keep", "none"]
CHANGED = "it was changed after agent setup wrote it"
FOREIGN = "agent setup did not write it"


@dataclass(frozen=True, slots=True)
class SetupStep:
    """What happens to one file; a folder is named only if it stays with what is in it."""

    action: SetupAction
    target: str
    """Its path below the root folder."""
    reason: str
    content: bytes = b""
    mode: int = 0

    @property
    def writes(self) -> bool:
        """Whether the file gets new contents."""
        return self.action in ("write", "replace")


def plan_setup(
    root: RootFolder, manifest: Manifest, files: Sequence[ShippedFile], command: PurePosixPath
) -> list[SetupStep]:
    """Return the steps that put ``files`` in place. Nothing is written.

    :raises ConfigErrors: everything that keeps a file from being written.
    """
    errors: list[ConfigError] = []
    steps: list[SetupStep] = []
    if root.has(PACKAGED_UNIT):
        errors.append(
            ConfigError(
                f"{root.path(PACKAGED_UNIT)}: a package has installed the service already",
                "remove that package, or leave the service to it",
            )
        )
    for file in files:
        with gathering(errors):
            content = read_shipped(file, command)
            root.check(file.target)
            steps.append(_step(root, manifest, file, content))
    with gathering(errors):
        root.check(MANIFEST)
    # What a former version of the package had.
    obsolete = manifest.files.keys() - {file.target for file in files}
    steps += _removals(root, obsolete, manifest, errors)
    _raise_each_once(errors)
    return steps


def _step(root: RootFolder, manifest: Manifest, file: ShippedFile, content: bytes) -> SetupStep:
    present = root.read(file.target)
    if present is None:
        return SetupStep("write", file.target, "", content, file.mode)
    if present == content:
        return SetupStep("none", file.target, "it is there already")
    if manifest.wrote(file.target, present):
        return SetupStep("replace", file.target, "this version has another", content, file.mode)
    if file.target in manifest.files:
        return SetupStep("keep", file.target, CHANGED)
    if file.is_configuration:
        return SetupStep("keep", file.target, "it was there before")
    raise ConfigError(
        f"{root.path(file.target)} is there, and agent setup did not write it",
        "move it away, or keep it and leave agent setup out",
    )


def plan_setup_removal(root: RootFolder, manifest: Manifest) -> list[SetupStep]:
    """Return the steps that take away what was written. Nothing is removed yet.

    :raises ConfigErrors: everything that keeps a file from being removed, such as the service that
        is enabled and would lose its unit.
    """
    errors: list[ConfigError] = []
    if manifest.files:
        with gathering(errors):
            root.check(MANIFEST)
    steps = list(_removals(root, manifest.files, manifest, errors))
    if any(step.action == "remove" and step.target == UNIT for step in steps):
        errors += _enabled(root)
    with gathering(errors):
        steps += _foreign_entries(root, manifest, steps)
    _raise_each_once(errors)
    return steps


def _raise_each_once(errors: Sequence[ConfigError]) -> None:
    """Raise the errors, if any. A folder in which many files have no place is told once."""
    ConfigErrors.raise_if_any(
        [*{(error.message, error.remedy): error for error in errors}.values()]
    )


def _foreign_entries(
    root: RootFolder, manifest: Manifest, steps: Sequence[SetupStep]
) -> list[SetupStep]:
    """Return what others have put into the folders that ``agent setup`` created, and what keeps
    these folders from being removed.
    """
    targets = [MANIFEST, *(step.target for step in steps), *manifest.folders]
    own = {*targets, *map(root.unfinished, targets)}
    return [
        SetupStep("keep", entry, FOREIGN)
        for folder in manifest.folders
        for entry in root.entries(folder)
        if entry not in own
    ]


def _enabled(root: RootFolder) -> Iterator[ConfigError]:
    name = PurePosixPath(UNIT).name
    for folder in sorted(root.path(UNITS).glob("*.wants")):
        # Below another root folder the link leads nowhere.
        if (link := folder / name).is_symlink():
            yield ConfigError(f"{link}: the service is enabled", f"systemctl disable --now {name}")


def _removals(
    root: RootFolder, targets: Iterable[str], manifest: Manifest, errors: list[ConfigError]
) -> Iterator[SetupStep]:
    for target in sorted(targets):
        with gathering(errors):
            root.check(target)
            present = root.read(target)
            if present is None:
                yield SetupStep("none", target, "it is gone already")
            elif manifest.wrote(target, present):
                yield SetupStep("remove", target, "")
            else:
                yield SetupStep("keep", target, CHANGED)


def carry_out(
    root: RootFolder, manifest: Manifest, steps: Sequence[SetupStep], command: str | None
) -> None:
    """Carry out the steps of a setup. A run that was interrupted can be repeated, or taken back.

    :param command: the value of ``--command``, of this run or a former one.
    :raises ConfigError: a file cannot be written or removed.
    """
    written = [step for step in steps if step.writes]
    removed = [step.target for step in steps if step.action == "remove"]
    for name in FOLDERS.keys() & set(manifest.folders):
        root.correct_mode(name, FOLDERS[name])
    # An interrupted run may have left both hashes of a file that needs no step any more.
    settled = _settled(root, manifest, steps)
    after = Manifest(settled, manifest.folders, command)
    if not written and not removed and after == manifest:
        root.remove_unfinished(MANIFEST)
        return
    targets = [MANIFEST, *(step.target for step in written), *(f"{name}/_" for name in FOLDERS)]
    missing = root.missing_folders(targets)
    # Sorted, because parents are first then.
    folders = tuple(sorted({*manifest.folders, *missing}))
    both = {
        step.target: (content_hash(step.content), *manifest.files.get(step.target, ()))
        for step in written
    }
    # Before the files, so that nothing is written that a removal would not find.
    write_manifest(root, Manifest({**manifest.files, **both}, folders, command))
    for name in missing:
        root.make_folder(name, FOLDERS.get(name, PLAIN_FOLDER))
    for step in written:
        root.write(step.target, step.content, step.mode)
    for target in removed:
        root.remove(target)
    write_manifest(root, replace(after, folders=folders))


def _settled(
    root: RootFolder, manifest: Manifest, steps: Sequence[SetupStep]
) -> Mapping[str, tuple[str, ...]]:
    """Return the files of a manifest once the steps are carried out: one hash for each file that is
    as it was written.
    """
    found = dict(manifest.files)
    for step in steps:
        if step.writes:
            found[step.target] = (content_hash(step.content),)
        elif step.action == "remove":
            found.pop(step.target, None)
        elif step.action == "none" and step.target in found:
            present = root.read(step.target)
            if present is None:
                found.pop(step.target)
            else:
                found[step.target] = (content_hash(present),)
    return found


def carry_out_removal(root: RootFolder, manifest: Manifest, steps: Sequence[SetupStep]) -> None:
    """Carry out the steps of a removal: files, then folders that are empty, the manifest last.

    :raises ConfigError: a file or folder cannot be removed.
    """
    for step in steps:
        # Of a file that is gone, an interrupted run may have left the beginning.
        if step.action != "keep":
            root.remove(step.target)
    kept = {
        step.target: manifest.files[step.target]
        for step in steps
        if step.action == "keep" and step.target in manifest.files
    }
    above_manifest = {str(parent) for parent in PurePosixPath(MANIFEST).parents}
    left = [
        name
        for name in reversed(manifest.folders)
        if name in above_manifest or not root.remove_folder(name)
    ]
    write_manifest(root, Manifest(kept, tuple(reversed(left))))
