"""Mutation testing of the modules that decide: which changes of their code the tests notice.

``python -m bench.mutation [MODULE ...]`` changes one function at a time and runs the tests that
call it until one fails. mutmut makes the mutants. They are run here and not
by mutmut, each in a process that is forked after all tests are collected, because a start of
pytest takes longer than most of these tests. See README.md beside this file.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import is_mutated_method_name, mangled_name_from_mutant_name

TREES = tuple(f"tests/unit/placement/test_{name}.py" for name in ("plan", "ownership", "reshaping"))
SERVER = tuple(f"tests/unit/placement/test_{name}.py" for name in ("flush", "mirror"))
FIT = ("tests/unit/numa", "tests/regressions/test_numa_fit_memo.py")
DEVICES = ("tests/unit/pci", "tests/functional/tracker/test_device_claims.py")
TRACKER = (
    *(
        f"tests/unit/tracker/test_{name}.py"
        for name in (
            "claims",
            "moves",
            "move_claims",
            "verdicts",
            "updates",
            "node_state",
            "allocations",
        )
    ),
    *(
        f"tests/functional/tracker/test_{name}.py"
        for name in (
            "instance_claims",
            "device_claims",
            "same_host_resize",
            "live_migration",
            "moves",
            "own_stores",
            "records_end",
        )
    ),
)
# The modules that decide, with the tests that are to notice a change of each.
MODULES: Mapping[str, Sequence[str]] = {
    "agent.placement.plan": TREES,
    "agent.placement.flush": SERVER,
    "agent.placement.merge": TREES,
    "agent.placement.reshaping": TREES,
    "agent.placement.mirror": SERVER,
    "agent.numa.fit": FIT,
    "agent.numa.matching": FIT,
    "agent.numa.pair": FIT,
    "agent.pci.choice": DEVICES,
    "agent.pci.lots": DEVICES,
    "agent.pci.offers": DEVICES,
    "agent.tracker.claims": TRACKER,
    "agent.tracker.moves": TRACKER,
    "agent.tracker.move_claims": TRACKER,
    "agent.tracker.verdicts": TRACKER,
    "agent.tracker.allocations": TRACKER,
}

RESULTS = Path(".state/mutation")
NOTICED = ("killed", "timeout")
# Seconds of CPU time above which a test is too slow to be run for each mutant.
SLOW = 3.0
# Seconds after which a mutant is ended that waits for something; one that computes is ended after
# some times the CPU time of its tests.
LONGEST_WAIT = 300
MEMORY = 8 << 30
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class Mutant:
    """One changed function."""

    name: str
    """With its module, as the trampoline of mutmut expects it."""
    function: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """The change itself; its number depends on the changes before it."""
        return f"{self.function}\n- {self.before}\n+ {self.after}"


def _functions(code: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the names and lines of the functions that mutmut made."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        for function in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if isinstance(function, ast.FunctionDef) and is_mutated_method_name(function.name):
                yield function.name, lines[function.lineno : function.end_lineno]


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return what is between the lines that both begin and end with."""
    begin = 0
    while begin < min(len(before), len(after)) and before[begin] == after[begin]:
        begin += 1
    end = 0
    while end < min(len(before), len(after)) - begin and before[-1 - end] == after[-1 - end]:
        end += 1
    return tuple(  # type: ignore[return-value]
        " ".join(line.strip() for line in lines[begin : len(lines) - end])
        for lines in (before, after)
    )


def _plain(line: str) -> str:
    """Return the line with all wordings of a text equal: a text is a string with a space, which is
    for people and is worded differently at any time.
    """
    return STRING.sub(
        lambda text: text[0].casefold().replace("xx", "") if " " in text[0] else text[0], line
    )


def mutants_of(module: str, code: str) -> list[Mutant]:
    """Return the mutants in the code that mutmut made, without those that only word a text
    differently.
    """
    functions = dict(_functions(code))
    seen: Counter[str] = Counter()
    found = []
    for name, lines in functions.items():
        mangled = mangled_name_from_mutant_name(name)
        before, after = _difference(functions[f"{mangled}__mutmut_orig"], lines)
        if _plain(before) != _plain(after):
            mutant = Mutant(f"{module}.{name}", f"{module}.{mangled}", before, after)
            # The same line may stand in a function several times.
            seen[mutant.key] += 1
            if seen[mutant.key] > 1:
                mutant = Mutant(
                    mutant.name, mutant.function, before, f"{after} # {seen[mutant.key]}"
                )
            found.append(mutant)
    return found


class Mutated(SourceFileLoader, MetaPathFinder):
    """Imports one module with all its mutants, of which the environment chooses one."""

    code = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        """Return the module's place with this loader; None for other modules."""
        if fullname != self.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        spec.loader = self
        return spec

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        """Refuse, so that no compiled file is read or written."""
        raise OSError(path)

    def source_to_code(self, data: Any, path: Any, **_options: Any) -> CodeType:
        """Compile the source with its mutants, which are made once: that takes seconds."""
        made = RESULTS / f"{self.name}-{hashlib.sha256(data).hexdigest()[:16]}.py"
        if not made.exists():
            made.write_text(mutate_file_contents(str(path), data.decode()).code)
        self.code = made.read_text()
        return compile(self.code, path, "exec", dont_inherit=True)


class Run:
    """The pytest plugin: runs the tests once, then for each mutant those that call its function."""

    def __init__(self, loaders: Sequence[Mutated], sample: int, seed: int, *, again: bool) -> None:
        self.loaders, self.sample, self.seed, self.again = loaders, sample, seed, again
        self.seconds: list[float] = []
        self.callers: dict[str, list[int]] = defaultdict(list)
        self.results: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, Counter[int]] = defaultdict(Counter)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let hypothesis stop at the first example that fails, and remember none."""
        settings.register_profile(
            "mutation",
            parent=settings.get_profile("untimed"),
            database=None,
            derandomize=True,
            max_examples=25,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run everything, the modules in turn; the results are in files."""
        self._observe(session.items)
        samples = [self._sample(loader.name, loader.code) for loader in self.loaders]
        for mutants in zip_longest(*samples):
            for loader, mutant in zip(self.loaders, mutants, strict=True):
                if mutant is not None:
                    self._test(loader.name, mutant, session.items)
        return True

    def _sample(self, module: str, code: str) -> list[Mutant]:
        """Return the mutants to test, and begin the module's results: those that are known."""
        mutants = mutants_of(module, code)
        chosen = random.Random(self.seed).sample(mutants, min(self.sample, len(mutants)))
        place = RESULTS / f"{module}.json"
        before = json.loads(place.read_text())["status"] if self.again and place.exists() else {}
        known = {mutant.key: before.get(mutant.key) for mutant in chosen}
        self.results[module] = {
            "mutants": len(mutants),
            "status": {key: status for key, status in known.items() if status in NOTICED},
        }
        return [mutant for mutant in chosen if known[mutant.key] not in NOTICED]

    def _test(self, module: str, mutant: Mutant, items: Sequence[pytest.Item]) -> None:
        status = self._status(items, mutant)
        if status not in NOTICED:
            print(f"{status}: {mutant.key}", flush=True)
        self.results[module]["status"][mutant.key] = status
        (RESULTS / f"{module}.json").write_text(json.dumps(self.results[module], indent=1))

    def _observe(self, items: Sequence[pytest.Item]) -> None:
        """Run each test once, and note which functions it calls and how long it computes."""
        set_mutant_under_test("stats")
        for at, item in enumerate(items):
            state()._stats.clear()
            begun = time.process_time()
            following = items[at + 1] if at + 1 < len(items) else None
            reports = runtestprotocol(item, log=False, nextitem=following)
            self.seconds.append(time.process_time() - begun)
            failed = any(report.failed for report in reports)
            if failed or self.seconds[at] > SLOW:
                why = "fails without a mutant" if failed else f"takes {self.seconds[at]:.1f} s"
                print(f"left out, because it {why}: {item.nodeid}", flush=True)
                continue
            for function in state()._stats:
                self.callers[function].append(at)
        set_mutant_under_test("")
        print(f"{len(items)} tests take {sum(self.seconds):.1f} s of CPU time", flush=True)

    def _status(self, items: Sequence[pytest.Item], mutant: Mutant) -> str:
        """Return how the tests of the mutant's function ended."""
        tests = self._in_order(items, mutant.function)
        if not tests:
            return "no test"
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os._exit(self._fails(items, tests, mutant, writing))
        os.close(writing)
        with os.fdopen(reading) as answer:
            failed = answer.read()
        _, ended = os.waitpid(child, 0)
        if os.WIFSIGNALED(ended):
            # On a busy machine a mutant may wait for the others, and not for something of its own.
            return "undecided" if os.WTERMSIG(ended) == signal.SIGALRM else "timeout"
        if failed:
            self.failed[mutant.function][int(failed)] += 1
        return "killed" if os.WEXITSTATUS(ended) else "survived"

    def _in_order(self, items: Sequence[pytest.Item], function: str) -> list[int]:
        """Return the tests that call a function: first those that have noticed other changes of
        it, then of each test in turn its quickest case that is left.
        """
        cases: Counter[str] = Counter()
        turns = {}
        for at in sorted(self.callers[function], key=self.seconds.__getitem__):
            name = items[at].nodeid.partition("[")[0]
            turns[at] = cases[name]
            cases[name] += 1
        noticed = self.failed[function]
        return sorted(turns, key=lambda at: (-noticed[at], turns[at], self.seconds[at]))

    def _fails(
        self, items: Sequence[pytest.Item], tests: Sequence[int], mutant: Mutant, answer: int
    ) -> int:
        """Run tests in a process that ends afterwards, until one fails; return whether one does,
        and write which one into ``answer``.
        """
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(silence, stream)
        limit = 5 + int(5 * sum(self.seconds[at] for at in tests))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST_WAIT + 20 * limit)
        set_mutant_under_test(mutant.name)
        try:
            for at, following in zip(tests, [*tests[1:], None], strict=True):
                reports = runtestprotocol(
                    items[at],
                    log=False,
                    nextitem=None if following is None else items[following],
                )
                if any(report.failed for report in reports):
                    os.write(answer, str(at).encode())
                    return 1
        except BaseException:  # noqa: BLE001 - whatever a mutant raises, it is noticed
            return 1
        return 0


def _results() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for module in MODULES:
        place = RESULTS / f"{module}.json"
        if place.exists():
            yield module, json.loads(place.read_text())


def table() -> str:
    """Return the results so far as Markdown."""
    lines = [
        "| module | tested of | killed |",
        "|---|---:|---:|",
    ]
    for module, result in _results():
        states = list(result["status"].values())
        killed = sum(status in NOTICED for status in states)
        lines.append(f"| `{module}` | {len(states)}/{result['mutants']} | {killed} |")
    return "\n".join(lines)


def survivors() -> str:
    """Return the changes that no test noticed."""
    return "\n\n".join(
        f"{status}: {key}"
        for _, result in _results()
        for key, status in sorted(result["status"].items())
        if status not in NOTICED
    )


def main() -> None:
    """Test modules, and print a table of all results so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="default: all that decide")
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=17, help="of the sample")
    parser.add_argument(
        "--again", action="store_true", help="leave out the mutants that were killed last time"
    )
    parser.add_argument("--survivors", action="store_true", help="print them, test nothing")
    options = parser.parse_args()
    if options.survivors:
        print(survivors())
        return
    modules = options.modules or list(MODULES)
    loaders = [Mutated(module, f"{module.replace('.', '/')}.py") for module in modules]
    sys.meta_path[:0] = loaders
    RESULTS.mkdir(parents=True, exist_ok=True)
    run = Run(loaders, options.sample, options.seed, again=options.again)
    tests = dict.fromkeys(test for module in modules for test in MODULES[module])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    needless = ("cacheprovider", "unraisableexception", "threadexception", "faulthandler")
    plugins = ["-p_hypothesis_pytestplugin", "-ppytest_timeout"]
    plugins += [f"-pno:{plugin}" for plugin in needless]
    quietly = ("-q", "-s", "-W", "ignore", "-m", "not soak and not long")
    pytest.main([*plugins, *quietly, *tests], plugins=[run])
    print(table())


if __name__ == "__main__":
    main()
