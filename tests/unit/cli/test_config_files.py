from pathlib import Path

from agent.cli.command import Source
from agent.cli.config_files import read_all, sources_of


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def errors_of(path: Path) -> list[str]:
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
    assert [message.split(":")[1] for message in errors_of(path)] == ["1", "3", "4", "5", "6"]


def test_bad_lines_are_not_shown_because_they_may_hold_a_password(tmp_path):
    assert (
        "hunter2"
        not in errors_of(written(tmp_path / "a.conf", "[placement]\npassword hunter2\n"))[0]
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
