"""Runs nova's own unit tests of ProviderTree, as its package has them, on the agent's ProviderTree.
For ``tox -e nova``, which installs nova.

Exits with 1 if a test fails that :data:`PRIVATE` does not name, or passes although it is named
there.
"""

import sys
import unittest
from types import SimpleNamespace

import nova.monkey_patch
from nova.compute import provider_tree

from agent.model.provider_tree import ProviderTree

MODULE = "nova.tests.unit.compute.test_provider_tree"
PRIVATE = {
    "test_deep_copy": (
        "all that it looks at is nova's lock; a tree of the agent's belongs to one "
        "thread and has none"
    )
}
"""The tests that ask for private parts of nova's tree which the agent's does not have, with the reason."""


class Opened(ProviderTree):
    """The agent's tree, with the one private method by which nova's tests walk through a tree."""

    def _find_with_lock(self, name_or_uuid: str) -> SimpleNamespace:
        found = self.provider(name_or_uuid)
        children = {uuid: self._find_with_lock(uuid) for uuid in self.children(found.uuid)}
        return SimpleNamespace(
            uuid=found.uuid,
            name=found.name,
            generation=found.generation,
            parent_uuid=found.parent_uuid,
            children=children,
        )


def main() -> int:
    """Run the tests. Returns the exit code."""
    nova.monkey_patch.patch()
    provider_tree.ProviderTree = Opened
    result = unittest.TextTestRunner(stream=sys.stdout).run(
        unittest.defaultTestLoader.loadTestsFromName(MODULE)
    )
    failed = {case.id().rpartition(".")[2] for case, _ in (*result.failures, *result.errors)}
    print(f"{result.testsRun - len(failed)} of {result.testsRun} passed")
    for name in sorted(failed | PRIVATE.keys()):
        print(
            f"{'failed' if name in failed else 'passed'}: {name}: "
            f"{PRIVATE.get(name, 'it should pass')}"
        )
    return 0 if result.testsRun and failed == PRIVATE.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
