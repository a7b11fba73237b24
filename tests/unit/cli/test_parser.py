import shlex
from pathlib import Path

import pytest

from agent.cli.command import FORMATS, Options, Override, Source
from agent.cli.command_table import AUDIT, COMMANDS, DAEMON, find
from agent.cli.parser import FLAGS, find_format, parse
from agent.errors import UsageError


def refused(*argv):
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return caught.value


def test_nothing_is_the_daemon():
    assert parse([]) == Options()
    assert find((), False) is DAEMON


def test_flags_of_an_audit():
    options = parse(
        [
            "--once",
            "--dry-run",
            "--adopt",
            "--reread",
            "--with-usages",
            "--detailed-exitcode",
            "--node",
            "a",
            "--node",
            "b",
            "--format",
            "json",
        ]
    )
    assert options == Options(
        once=True,
        dry_run=True,
        adopt=True,
        reread=True,
        with_usages=True,
        detailed_exitcode=True,
        nodes=("a", "b"),
        format="json",
    )
    assert find((), True) is AUDIT


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_is_parsed_with_its_arguments_and_found(command):
    own = [one for one in command.arguments if not one.name.startswith("-")]
    values = [one.choices[0] if one.choices else one.metavar for one in own]
    options = parse([*command.words, *values])
    assert options.command == command.words
    assert all(
        options.arguments[one.key] == ((value,) if one.many else value)
        for one, value in zip(own, values, strict=True)
    )
    assert find(command.words, False) is command


def test_arguments_of_a_command_of_its_own():
    options = parse(
        [
            "allocation",
            "--dry-run",
            "move",
            "a",
            "--overwrite",
            "b",
            "--project-id",
            "p",
            "--format",
            "json",
        ]
    )
    assert options.arguments == {
        "source": "a",
        "target": "b",
        "overwrite": True,
        "project_id": "p",
        "user_id": None,
    }
    assert (options.dry_run, options.format) == (True, "json")
    several = parse(["decommission", "--consumer", "c", "node-a", "--consumer", "d"])
    assert several.arguments == {
        "root": "node-a",
        "consumer": ("c", "d"),
        "evacuated": (),
        "all_providers": False,
    }
    assert parse(["candidates", "resources=VCPU:1", "limit=2"]).arguments == {
        "query": ("resources=VCPU:1", "limit=2")
    }
    assert parse(["tree"]).arguments == {}


def test_options_may_stand_on_both_sides_of_the_command():
    options = parse(
        ["--node", "a", "--format", "text", "tree", "--node", "b", "--format", "json", "--offline"]
    )
    assert (options.command, options.nodes, options.format, options.offline) == (
        ("tree",),
        ("a", "b"),
        "json",
        True,
    )


def test_an_option_before_the_command_is_not_lost():
    assert parse(["--format", "json", "config", "check"]).format == "json"
    assert parse(["config", "--format", "json", "check"]).format == "json"


def test_sources_keep_their_order():
    options = parse(["--config-file", "a", "--config-dir", "b", "tree", "--config-file=c"])
    assert options.sources == (Source(Path("a")), Source(Path("b"), True), Source(Path("c")))


@pytest.mark.parametrize("option", ["--host-sysfs_root", "--host-sysfs-root"])
def test_options_of_the_configuration_with_hyphens_and_underscores(option):
    assert parse([option, "/x"]).overrides == (Override("host", "sysfs_root", "/x"),)


def test_options_of_the_default_section_have_no_prefix():
    options = parse(["--compute_driver", "fake", "--host", "h", "--reserved-host-cpus=2"])
    assert [(one.group, one.name, one.value) for one in options.overrides] == [
        (None, "compute_driver", "fake"),
        ("DEFAULT", "host", "h"),
        (None, "reserved_host_cpus", "2"),
    ]


def test_switches_can_be_turned_on_and_off():
    assert parse(["--enabled"]).overrides == (Override(None, "enabled", True),)
    assert parse(["--noenabled"]).overrides == (Override(None, "enabled", False),)
    assert parse(["--placement-insecure"]).overrides == (Override("placement", "insecure", True),)
    assert parse(["--placement-noinsecure"]).overrides == (
        Override("placement", "insecure", False),
    )


def test_the_last_value_wins():
    assert parse(["--compute-workers", "1", "--compute-workers", "2"]).overrides == (
        Override("compute", "workers", "2"),
    )


def test_options_of_other_authentication_plugins_are_known():
    assert parse(["--placement-endpoint", "http://x"]).overrides == (
        Override("placement", "endpoint", "http://x"),
    )


@pytest.mark.parametrize("argv", [["--debug"], ["-d"], ["tree", "--debug"]])
def test_debug(argv):
    assert parse(argv).debug


def test_debug_taken_back():
    assert not parse(["--debug", "--nodebug"]).debug


@pytest.mark.parametrize(
    "argv",
    [
        ["--nonsense"],
        ["--onc"],
        ["--format", "xml"],
        ["--node"],
        ["--compute-workers"],
        ["frobnicate"],
        ["claims", "extra"],
        ["claims", "--node", "a"],
        ["claim"],
        ["claim", "create"],
        ["claim", "create", "a", "b"],
        ["claim", "abort", "a", "--offline"],
        ["migrate", "finish"],
        ["migrations", "--all", "extra"],
        ["config"],
        ["config", "frobnicate"],
        ["tree", "extra"],
        ["--once", "tree"],
        ["--dry-run"],
        ["--adopt"],
        ["--reread"],
        ["--with-usages"],
        ["--detailed-exitcode"],
        ["--node", "a"],
        ["--offline"],
        ["--once", "--offline"],
        ["tree", "--dry-run"],
        ["config", "check", "--node", "a"],
        ["candidates"],
        ["allocation"],
        ["allocation", "show"],
        ["allocation", "show", "a", "b"],
        ["allocation", "show", "a", "--force"],
        ["allocation", "show", "a", "--node", "b"],
        ["aggregate", "add-host", "a"],
        ["decommission"],
        ["decommission", "a", "--consumer"],
        ["--once", "usages", "a"],
    ],
)
def test_wrong_usage_is_refused_with_the_usage(argv):
    error = refused(*argv)
    assert error.code == "usage.invalid"
    assert error.usage.startswith("usage: agent") or error.message.startswith("did you mean ")
    assert error.remedy.endswith("--help")


def test_wrong_usage_names_what_is_wrong():
    assert "--nonsense" in refused("--nonsense").message
    assert refused("--dry-run").message == "--dry-run can be used with --once, not with the daemon"
    assert refused("tree", "--adopt").message == "--adopt cannot be used with tree"
    assert refused("config").remedy == "agent config --help"


@pytest.mark.parametrize("argv", [["--help"], ["tree", "--help"], ["config", "--help"]])
def test_help_is_printed(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: agent")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "text"),
        (["--format", "json", "--nonsense"], "json"),
        (["--nonsense", "--format=json"], "json"),
        (["--nonsense", "--format=yaml"], "yaml"),
        (["--nonsense", "--format", "dot"], "dot"),
        (["--format", "table"], "text"),
        (["--format", "json", "--format", "text"], "text"),
        (["--format", "xml"], "text"),
        (["--node", "json"], "text"),
        (["--format"], "text"),
    ],
)
def test_format_is_found_in_command_lines_that_make_no_sense(argv, expected):
    assert find_format(argv) == expected


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["tre"], "tree"),
        (["allocations", "show", "a"], "allocation"),
        (["claim", "creat", "f"], "create"),
        (["help", "stats"], "status"),
        (["--once", "--dryrun"], "--dry-run"),
        (["--once", "--detailed-exit-code"], "--detailed-exitcode"),
        (["tree", "--of-line"], "--offline"),
        (["--placement-backendd=http"], "--placement-backend"),
        (["--once", "--format", "jsno"], "json"),
    ],
)
def test_what_was_nearly_right_is_named(argv, meant):
    error = refused(*argv)
    assert error.message.startswith(f"did you mean {meant}? ")
    # Nothing is written before it.
    assert error.usage == ""
    assert error.remedy.startswith("agent")


@pytest.mark.parametrize("argv", [["xyzzy"], ["--xyzzy"], ["tree", "extra"], ["help", "--once"]])
def test_what_is_like_nothing_gets_no_guess(argv):
    error = refused(*argv)
    assert "did you mean" not in error.message
    assert error.usage
    assert error.remedy.startswith("agent")


def helped(capsys, *argv):
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 0
    return capsys.readouterr().out


def takes_format(command, form):
    """Whether the parser takes ``--format form`` with the command's first example."""
    _program, *argv = shlex.split(command.examples[0])
    try:
        parse([*argv, "--format", form])
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_the_help_of_a_command_has_the_flags_that_it_takes_and_examples_that_work(command, capsys):
    shown = helped(capsys, *command.words, "--help")
    assert shown == helped(capsys, "help", *command.words)
    assert {
        name for name, flag in FLAGS.items() if f"{flag} " in shown or f"{flag}\n" in shown
    } == command.flags
    assert "--once" not in shown
    for form in FORMATS:
        offered = f"{{{form}," in shown or f",{form}," in shown or f",{form}}}" in shown
        assert offered == takes_format(command, form)
    assert command.examples
    for example in command.examples:
        assert example in shown
        program, *argv = shlex.split(example)
        assert (program, parse(argv).command) == ("agent", command.words)


def test_help_alone_shows_the_commands(capsys):
    shown = helped(capsys, "help")
    assert shown == helped(capsys, "--help")
    assert all(command.words[0] in shown for command in COMMANDS)
    assert {flag for flag in FLAGS.values() if flag in shown} == set(FLAGS.values())
