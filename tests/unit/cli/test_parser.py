import shlex
from pathlib import Path

import pytest

from agent.cli.command import FORMATS, Override, Source
from agent.cli.command_table import COMMANDS, find
from agent.cli.parser import FLAGS, find_format, parse
from agent.errors import UsageError


def refused(*argv):
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return caught.value


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
