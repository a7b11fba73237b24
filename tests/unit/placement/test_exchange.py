"""One way to send a request: tolerant of any answer, bounded, ended by a shutdown."""

import json
import logging
import threading
import time

import pytest

from agent.errors import PlacementUnreachable
from agent.placement.answers import PlacementAnswer
from agent.placement.exchange import Exchange
from tests.unit.placement.conftest import transport_to

PATH = "/resource_providers"
REQUEST = "req-00000000-0000-4000-8000-000000000001"


def answer(body, status=409) -> PlacementAnswer:
    return PlacementAnswer(
        "http://placement", "PUT", PATH, status, json.dumps(body).encode(), "req-server"
    )


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        "text",
        7,
        True,
        {"error": {}},
        *({"errors": errors} for errors in (None, [], {}, "abc", [None], ["x"], [{}])),
    ],
)
def test_any_other_body_is_an_error_without_a_code(body):
    assert (answer(body).error, answer(body).code) == ({}, "")
    assert (
        answer(body)
        .refusal()
        .message.endswith("-> 409 from http://placement: an answer that is not Placement's own")
    )


def test_control_characters_of_an_answer_do_not_reach_a_message():
    told = answer({"errors": [{"code": "a\x1b[31m\n", "detail": "b\x00\x1b"}]}).refusal().message
    assert told.isprintable()


# --- sending --------------------------------------------------------------------------------------


# --- stopping -------------------------------------------------------------------------------------


def test_who_waits_for_a_slot_while_the_agent_begins_to_stop_sends_nothing(placement):
    transport = transport_to(placement)
    raised = []

    def send():
        try:
            Exchange(transport, REQUEST).send("GET", PATH, "1.23")
        except PlacementUnreachable as error:
            raised.append(error.kind)

    with transport.slots:
        waiting = threading.Thread(target=send)
        waiting.start()
        time.sleep(0.02)
        transport.cancelled.set()
    waiting.join(60)
    assert (raised, placement.count()) == (["cancelled"], 0)


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("max_in_flight", [1, 4])
def test_results_come_in_the_order_of_the_items(placement, max_in_flight):
    exchange = Exchange(transport_to(placement, max_in_flight), REQUEST)

    def slow(item):
        time.sleep(0.01 if item % 2 else 0)
        return item * 10

    assert exchange.each(slow, iter(range(9))) == [item * 10 for item in range(9)]
    assert exchange.each(slow, []) == []


def test_no_more_are_under_way_than_may_be(placement):
    exchange = Exchange(transport_to(placement, 3), REQUEST)
    # Three calls at once pass the barrier together; a fourth at the same time would be counted.
    together, lock, now, most = threading.Barrier(3), threading.Lock(), 0, 0

    def work(_item):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(60)
        with lock:
            now -= 1

    exchange.each(work, range(12))
    assert most == 3


@pytest.mark.parametrize("max_in_flight", [1, 2])
def test_the_first_exception_ends_it_and_nothing_else_is_begun(placement, max_in_flight):
    begun, ended = [], []

    def work(item):
        begun.append(item)
        if item == 0:
            raise ValueError("the first")
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(ValueError, match="the first"):
        Exchange(transport_to(placement, max_in_flight), REQUEST).each(work, range(50))
    assert len(begun) < 10
    assert sorted(ended) == sorted(set(begun) - {0}), "what is under way comes to its end"


@pytest.mark.parametrize("max_in_flight", [1, 4])
def test_of_many_nothing_more_is_sent_once_the_agent_is_stopping(placement, max_in_flight):
    transport = transport_to(placement, max_in_flight)
    exchange = Exchange(transport, REQUEST)

    def work(item):
        if item == 5:
            transport.cancelled.set()
        return exchange.send("GET", PATH, "1.23")

    with pytest.raises(PlacementUnreachable, match="the agent is stopping"):
        exchange.each(work, range(200))
    assert placement.count() <= 5 + max_in_flight


def test_a_line_about_usages_does_not_say_whose_they_are(transport, caplog):
    caplog.set_level(logging.DEBUG, "agent")
    Exchange(transport, REQUEST).send(
        "GET", "/usages?project_id=their-project&user_id=them", "1.23"
    )
    assert "/usages?project_id=...&user_id=..." in caplog.text
    assert "their-project" not in caplog.text
