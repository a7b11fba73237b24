"""The lock that is given in turn."""

import threading
import time

import pytest

from agent.tracker.node_entry import FairLock


def test_turns_come_in_the_order_of_asking() -> None:
    lock, order, threads = FairLock(), list[int](), list[threading.Thread]()

    def wait(number: int) -> None:
        with lock:
            order.append(number)

    with lock:
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            # Until it waits, so that the next one comes after it.
            while len(lock._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_nobody_is_inside_together() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (1, 0)


def test_an_error_inside_lets_go() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="wrong"), lock:
        raise ValueError("wrong")
    with lock:
        pass
