import logging

import pytest

from agent.cli import logs
from agent.cli.configuration import load
from agent.cli.logs import set_up_logging
from agent.cli.parser import parse
from agent.errors import ConfigError
from agent.model.names import printable


@pytest.fixture
def nova_conf(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text(
        f"[DEFAULT]\ndebug = true\nlog_dir = {tmp_path}\nlog_file = nova.log\nuse_syslog = "
        "true\npublish_errors = true\n"
    )
    return str(file)


def said(capsys):
    log = logging.getLogger("agent.anything")
    log.debug("a detail")
    log.info("a step")
    log.warning("a warning")
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_once_tells_no_more_for_loggers_that_default_log_levels_raise(nova_conf, capsys):
    set_up_logging(load(parse(["--once", "--config-file", nova_conf])), once=True)
    logging.getLogger("oslo_policy").info("chatter")
    assert "chatter" not in said(capsys)


@pytest.mark.parametrize(
    "setting",
    [
        "log_file = /no/such/folder/agent.log",
        "log_config_append = /no/such/file",
        "default_log_levels = agent=LOUD",
    ],
)
def test_a_log_that_cannot_be_written_is_a_configuration_error(tmp_path, setting):
    file = tmp_path / "agent.conf"
    file.write_text(f"[DEFAULT]\n{setting}\n")
    conf = load(parse(["--config-file", str(file)]))
    with pytest.raises(ConfigError) as caught:
        set_up_logging(conf, once=False)
    assert caught.value.remedy


def test_bodies_of_requests_are_not_logged_even_with_debug(capsys):
    set_up_logging(load(parse(["--once", "--debug"])), once=True, debug=True)
    for name in (
        "keystoneauth.session",
        "keystoneauth.identity.v3",
        "urllib3.connectionpool",
        "stevedore.extension",
    ):
        logging.getLogger(name).debug("X-Auth-Token: secret")
    assert "secret" not in capsys.readouterr().err


def test_a_line_without_colours_is_escaped_as_one_text(monkeypatch):
    escaped = []
    monkeypatch.setattr(logs, "printable", lambda text: escaped.append(text) or printable(text))
    record = logging.LogRecord("n", logging.INFO, "f", 1, "said \x07", (), None)
    # As oslo.log sets them for a handler without colours.
    record.color = record.reset_color = ""
    assert logs.Masking(logging.Formatter("%(message)s")).format(record) == "said \\x07"
    assert escaped == ["said \x07"]
