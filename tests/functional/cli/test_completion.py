"""``agent completion``: the scripts, asked by the shells themselves."""

import runpy
import shlex
import shutil
import subprocess

import pytest

from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.system import AgentHere

_GENERATE = runpy.run_path(str(CHECKOUT / "etc" / "completion" / "generate.py"))
FILES, script = _GENERATE["FILES"], _GENERATE["script"]

FOLDER = CHECKOUT / "etc" / "completion"

# What a line is completed to. The last word is what is being typed.
CASES = {
    "agent cl": {"claim", "claims"},
    "agent claim ": {"abort", "create", "show"},
    "agent claim cr": {"create"},
    "agent --format json tre": {"tree"},
    "agent --format=json tre": {"tree"},
    "agent tree --format ": {"text", "json", "yaml", "dot"},
    "agent --format na": {"nagios"},
    "agent status --format ": {"text", "json", "yaml"},
    "agent tree --off": {"--offline"},
    "agent claim create --off": set(),
    "agent tree --node cl": set(),
    "agent --store-p": {"--store-path"},
    "agent completion f": {"fish"},
    "agent help tak": {"takeover"},
    "agent tree --config-file {folder}/on": {"{folder}/one.conf"},
    "agent db restore {folder}/on": {"{folder}/one.conf"},
}

BASH = r"""
. "$1"
eval "COMP_WORDS=($2)"
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_shtab_agent
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "agent").mkdir()
    return AgentHere(tmp_path / "agent")


def shell(name):
    found = shutil.which(name)
    if found is None:
        backends.missing(f"the shell {name}", f"apt-get install {name}")
    return found


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done
    return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}


def words_of(line, *, split):
    """The words as the shell hands them to the function; the last one may be empty."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    if split:
        words = [part for word in words for part in word.replace("=", " = ").split(" ") or [""]]
    return " ".join(map(shlex.quote, words))


def asked(name, line):
    script = str(FOLDER / FILES[name])
    if name == "bash":
        return run(shell("bash"), "--norc", "-c", BASH, "-", script, words_of(line, split=True))
    return run(
        shell("fish"), "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"
    )


@pytest.mark.parametrize("name", ["bash", "fish"])
@pytest.mark.parametrize("line", CASES)
def test_a_line_is_completed(name, line, tmp_path):
    (tmp_path / "one.conf").write_text("")
    wanted = {word.format(folder=tmp_path) for word in CASES[line]}
    assert asked(name, line.format(folder=tmp_path)) == wanted


def test_the_script_of_zsh_can_be_read():
    run(shell("zsh"), "-n", str(FOLDER / FILES["zsh"]))


@pytest.mark.parametrize("name", FILES)
def test_the_committed_script_is_the_generated_one_and_what_the_command_prints(name, agent):
    committed = (FOLDER / FILES[name]).read_text()
    assert script(name) == committed, f"make genconfig: {FILES[name]}"
    result = agent.run("completion", name)
    assert (result.code, result.stdout) == (0, committed)
    assert agent.run("completion", name, "--format", "json").json["script"] == committed


def test_an_unknown_shell_is_refused(agent):
    result = agent.run("completion", "fsh")
    assert result.code == 64
    assert "did you mean fish?" in result.stderr
