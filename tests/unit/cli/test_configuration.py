from pathlib import Path

import pytest

from agent.cli.command import Source
from agent.cli.config_files import read_all, sources_of
from agent.cli.configuration import load
from agent.cli.parser import parse
from agent.conf.default import host_name
from agent.errors import ConfigErrors


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "agent.conf") -> str:
        path: Path = tmp_path / "given" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def loaded(*argv, environ=None):
    return load(parse(argv), environ or {})


def errors_of(*argv, environ=None):
    with pytest.raises(ConfigErrors) as caught:
        loaded(*argv, environ=environ)
    return [error.message for error in caught.value.errors]


def test_host_name_and_host_section_do_not_hide_each_other(file):
    conf = loaded("--config-file", file("[DEFAULT]\nhost = h\n[host]\nsysfs_root = /x\n"))
    assert (host_name(conf), conf.host.sysfs_root) == ("h", "/x")


def test_later_files_win(file):
    first, second = file("[compute]\nworkers = 5\n", "a"), file("[compute]\nworkers = 6\n", "b")
    assert loaded("--config-file", first, "--config-file", second).compute.workers == 6
    assert loaded("--config-file", second, "--config-file", first).compute.workers == 5


def test_the_command_line_wins_wherever_it_stands(file, monkeypatch):
    monkeypatch.setenv("OS_COMPUTE__WORKERS", "7")
    path = file("[compute]\nworkers = 5\n[DEFAULT]\nhost = a\n")
    conf = loaded("--compute-workers", "6", "--host", "b", "--config-file", path)
    assert (conf.compute.workers, host_name(conf)) == (6, "b")


def test_the_environment_wins_over_files(file, monkeypatch):
    monkeypatch.setenv("OS_COMPUTE__WORKERS", "7")
    assert loaded("--config-file", file("[compute]\nworkers = 5\n")).compute.workers == 7


def test_options_of_the_chosen_plugin_are_taken_from_the_command_line():
    conf = loaded("--placement-auth_type", "none", "--placement-endpoint", "http://x")
    assert conf.placement.endpoint == "http://x"


def test_options_of_another_plugin_are_refused():
    (message,) = errors_of("--placement-auth_type", "password", "--placement-endpoint", "http://x")
    assert message == "command line: [placement] endpoint is no option of this configuration"


def test_every_error_is_told_at_once(file):
    bad = file("[DEFAULT]\nno sense\n", "bad")
    path = file(
        "[DEFAULT]\ndebug = maybe\nreserved_host_cpus = -1\n[compute]\nworkers = "
        "many\n[placement]\nbackend = carrier-pigeon\nread_timeout = 0\n"
    )
    assert errors_of(
        "--config-file", bad, "--config-file", path, "--compute-facts_deadline", "x"
    ) == [
        f"{bad}:2: No ':' or '=' found in assignment",
        "command line: [compute] facts_deadline = x: not a whole number of at least 1",
        f"{path}:2: [DEFAULT] debug = maybe: not true or false",
        f"{path}:3: [DEFAULT] reserved_host_cpus = -1: not a whole number of at least 0",
        f"{path}:5: [compute] workers = many: not a whole number from 1 to 64",
        f"{path}:7: [placement] backend = carrier-pigeon: not one of auto, http, embedded",
        f"{path}:8: [placement] read_timeout = 0: not a whole number of at least 1",
    ]


def test_the_file_that_is_named_is_the_one_that_wins(file):
    first, second = (
        file("[compute]\nworkers = bad\n", "a"),
        file("[compute]\nworkers = worse\n", "b"),
    )
    assert errors_of("--config-file", first, "--config-file", second) == [
        f"{second}:2: [compute] workers = worse: not a whole number from 1 to 64"
    ]


def test_a_bad_environment_variable_is_named(monkeypatch):
    monkeypatch.setenv("OS_COMPUTE__WORKERS", "many")
    expected = (
        "environment variable OS_COMPUTE__WORKERS: [compute] workers = many: not a whole number "
        "from 1 to 64"
    )
    assert errors_of(environ={"OS_COMPUTE__WORKERS": "many"}) == [expected]


def test_an_unknown_plugin_is_named_with_its_place(file):
    path = file("[placement]\nauth_type = carrier-pigeon\n")
    assert errors_of("--config-file", path) == [
        f"{path}:2: [placement] auth_type = carrier-pigeon: no such authentication plugin"
    ]


def test_leftovers_of_another_plugin_are_ignored(file):
    conf = loaded(
        "--config-file",
        file("[placement]\nauth_type = none\nendpoint = http://x\nusername = $nobody\n"),
    )
    assert conf.placement.endpoint == "http://x"


def test_a_reference_to_nothing_is_told_once(file):
    path = file("[DEFAULT]\nstate_path = $nowhere/x\n")
    assert errors_of("--config-file", path) == [
        (
            f"{path}:2: [DEFAULT] state_path = $nowhere/x: what $ refers to is not set here or "
            "does not fit"
        )
    ]


def test_secrets_are_not_shown(file):
    path = file(
        "[placement]\nauth_type = password\npassword = pa$word\n[store]\nconnection = "
        "sqlite:///$nothing\n"
    )
    messages = errors_of("--config-file", path)
    assert len(messages) == 2
    assert all("<secret>" in message for message in messages)
    assert not any("pa$word" in message or "$nothing" in message for message in messages)


def test_control_characters_in_values_are_escaped(file):
    (message,) = errors_of("--config-file", file("[compute]\nworkers = \x1b[31m\n"))
    assert r"\x1b[31m" in message


def test_the_sections_of_types_of_mediated_devices_are_options(file):
    path = file("""
[devices]
enabled_vgpu_types = nvidia-35, i915-GVTg_V5_4

[mdev_nvidia-35]
device_addresses = 0000:84:00.0,0000:85:00.0
max_instances = 0

[vgpu_i915-GVTg_V5_4]
device_addresses = 0000:00:02.0

[mdev_nvidia-36]
max_instances = none
""")
    assert errors_of("--config-file", path) == [
        f"{path}:7: [mdev_nvidia-35] max_instances = 0: not a whole number of at least 1"
    ]
    conf = loaded(
        "--config-file",
        file(
            """
[devices]
enabled_vgpu_types = nvidia-35, i915-GVTg_V5_4

[mdev_nvidia-35]
device_addresses = 0000:84:00.0,0000:85:00.0

[vgpu_i915-GVTg_V5_4]
device_addresses = 0000:00:02.0
""",
            "right.conf",
        ),
    )
    assert conf["mdev_nvidia-35"].device_addresses == ["0000:84:00.0", "0000:85:00.0"]
    assert conf["mdev_i915-GVTg_V5_4"].device_addresses == ["0000:00:02.0"]


# --- more ---


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def file_errors(path: Path) -> list[str]:
    _files, errors = read_all([Source(path)])
    return [error.message.removeprefix(str(path)) for error in errors]


def test_values_are_found_with_their_lines(tmp_path):
    path = written(
        tmp_path / "a.conf", "# note\n[DEFAULT]\nx = 1\nlong = a\n  b\n\n[Compute]\nx: 2\nx = 3\n"
    )
    (file,), errors = read_all([Source(path)])
    assert errors == []
    found = {
        (section, name): [(one, one.line) for one in values]
        for section, names in file.sections.items()
        for name, values in names.items()
    }
    assert found == {
        ("DEFAULT", "x"): [("1", 3)],
        ("DEFAULT", "long"): [("a\nb", 4)],
        ("compute", "x"): [("2", 8), ("3", 9)],
    }


def test_every_error_of_a_file_is_named_with_its_line(tmp_path):
    path = written(tmp_path / "a.conf", "x = 1\n[DEFAULT]\nno sense\n= 3\n[open\n[]\n y\n")
    assert [message.split(":")[1] for message in file_errors(path)] == ["1", "3", "4", "5", "6"]


def test_bad_lines_are_not_shown_because_they_may_hold_a_password(tmp_path):
    assert (
        "hunter2"
        not in file_errors(written(tmp_path / "a.conf", "[placement]\npassword hunter2\n"))[0]
    )


def test_errors_of_all_files_are_told_and_good_files_are_read(tmp_path):
    bad, good = written(tmp_path / "bad.conf", "\0"), written(tmp_path / "good.conf", "[DEFAULT]\n")
    files, errors = read_all(
        [Source(bad), Source(tmp_path / "absent"), Source(good), Source(tmp_path / "no-dir", True)]
    )
    assert [file.path for file in files] == [good]
    assert [error.message for error in errors][1:] == [
        f"--config-file {tmp_path}/absent: No such file or directory",
        f"--config-dir {tmp_path}/no-dir: No such file or directory",
    ]
    assert all(error.remedy for error in errors)


def test_folders_and_binary_files_are_no_configuration_files(tmp_path):
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe")
    _, errors = read_all([Source(tmp_path), Source(tmp_path / "binary")])
    assert "Is a directory" in errors[0].message
    assert "not text" in errors[1].message


def test_usual_places_are_read_when_no_file_is_given(tmp_path):
    file = written(tmp_path / ".compute-node-agent" / "agent.conf", "")
    written(tmp_path / "agent.conf", "")
    folder = tmp_path / "agent.conf.d"
    folder.mkdir()
    written(tmp_path / "compute-node-agent.conf", "")
    assert sources_of([]) == (Source(file), Source(folder, True))


def test_a_given_file_stands_in_for_all_usual_places(tmp_path):
    written(tmp_path / "agent.conf", "")
    (tmp_path / "agent.conf.d").mkdir()
    given = (Source(Path("x.conf")), Source(Path("y"), True))
    assert sources_of(given) == given


def test_a_given_folder_stands_in_for_the_usual_folder_only(tmp_path):
    file = written(tmp_path / "agent.conf", "")
    (tmp_path / "agent.conf.d").mkdir()
    assert sources_of([Source(Path("y"), True)]) == (Source(file), Source(Path("y"), True))
