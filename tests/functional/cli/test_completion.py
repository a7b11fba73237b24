"""``agent completion``: the scripts, asked by the shells themselves."""

import shlex
import shutil
import subprocess

import pytest

from agent.cli.command_table import COMMANDS
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.system import AgentHere

FILES = {"bash": "bash/agent", "zsh": "zsh/_agent", "fish": "fish/agent.fish"}
FOLDER = CHECKOUT / "etc" / "completion"

# What a line is completed to. The last word is what is being typed.
CASES = {
    "agent cl": {"claim", "claims"},
    "agent claim ": {"abort", "create", "show"},
    "agent claim cr": {"create"},
    "agent --format json tre": {"tree"},
    "agent --format=json tre": {"tree"},
    "agent tree --format ": {"text", "table", "json", "yaml", "dot", "mermaid"},
    "agent --format na": {"nagios"},
    "agent status --format ": {"text", "table", "json", "yaml"},
    "agent watch --form": set(),
    "agent tree --off": {"--offline"},
    "agent claim create --off": set(),
    "agent tree --node cl": set(),
    "agent --store-p": {"--store-path"},
    "agent setup --drop-in n": {"nova", "nova-compute"},
    "agent completion f": {"fish"},
    "agent help tak": {"takeover"},
    "agent tree --config-file {folder}/on": {"{folder}/one.conf"},
    "agent db restore {folder}/on": {"{folder}/one.conf"},
}

BASH = r"""
. "$1"
eval "COMP_WORDS=($2)"
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_agent
printf '%s\n' "${COMPREPLY[@]}"
"""

# The functions of zsh's completion that show matches print them here.
ZSH = r"""
compdef() { : }
_describe() { [[ $1 == -o ]] && shift; local -a all; all=("${(@P)2}"); compadd -- "${all[@]%%:*}" }
_files() { compadd -- ${words[CURRENT]}*(N) }
compset() { words[CURRENT]=${words[CURRENT]#*=} }
compadd() { shift; local word; for word in "$@"; do [[ $word == ${words[CURRENT]}* ]] && print -r -- $word; done; return 0 }
source "$1"
eval "words=($2)"
CURRENT=$#words
_agent
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
    if name == "zsh":
        return run(shell("zsh"), "-f", "-c", ZSH, "-", script, words_of(line, split=False))
    return run(
        shell("fish"), "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"
    )


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("line", CASES)
def test_a_line_is_completed(name, line, tmp_path):
    (tmp_path / "one.conf").write_text("")
    wanted = {word.format(folder=tmp_path) for word in CASES[line]}
    assert asked(name, line.format(folder=tmp_path)) == wanted


@pytest.mark.parametrize("line", ["agent tree --config-file", "agent db restore"])
def test_bash_completes_the_names_of_hostile_files_whole(line, tmp_path):
    hostile = tmp_path / "one $(touch pwned) * `id`;x.conf"
    hostile.write_text("")
    (tmp_path / "two").write_text("")
    assert asked("bash", f"{line} {tmp_path}/on") == {str(hostile)}
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", FILES)
def test_the_committed_script_is_what_the_command_prints(name, agent):
    result = agent.run("completion", name)
    assert result.code == 0
    assert result.stdout == (FOLDER / FILES[name]).read_text(), f"make genconfig: {FILES[name]}"
    assert agent.run("completion", name, "--format", "json").json["script"] == result.stdout


def test_every_command_is_offered():
    text = (FOLDER / FILES["bash"]).read_text()
    for command in COMMANDS:
        assert f"'{' '.join(command.words)}'" in text


def test_an_unknown_shell_is_refused(agent):
    result = agent.run("completion", "fsh")
    assert result.code == 64
    assert "did you mean fish?" in result.stderr
