import threading

from agent.errors import NotReady
from tests.unit.drivers.fakes import started


def what_happens(driver, calls):
    told = []
    for _ in range(calls):
        for call in (driver.nodes, lambda: driver.facts("cn1")):
            try:
                answer = call()
            except NotReady as error:
                told.append(error.message)
            else:
                told.append(
                    answer
                    if isinstance(answer, dict)
                    else {**answer.incomplete, "cpu_facts": answer.cpu, "pci_facts": answer.pci}
                )
    return told


def chaos(seed, probability=0.5):
    return started("fake.chaos", chaos_seed=seed, chaos_probability=probability)


def test_the_same_seed_does_the_same():
    one, other = chaos(7), chaos(7)
    assert what_happens(one, 40) == what_happens(other, 40)
    assert one.disturbed == other.disturbed
    assert set(one.disturbed) == {"delay", "not-ready", "partial"}


def test_threads_do_not_change_what_happens():
    alone, shared = chaos(7), chaos(7)
    what_happens(alone, 40)
    threads = [threading.Thread(target=what_happens, args=(shared, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.disturbed == alone.disturbed


def test_what_is_wrong_in_a_partial_answer_is_flagged_and_the_rest_is_right():
    driver, numa = chaos(3, 1.0), started("fake.numa").facts("cn1")
    fields = {
        "cpu": "cpu",
        "memory": "memory_mib",
        "disk": "disk_gib",
        "numa": "numa",
        "pci": "pci",
    }
    seen = set()
    for _ in range(60):
        try:
            facts = driver.facts("cn1")
        except NotReady:
            continue
        for section, field in fields.items():
            right = getattr(facts, field) == getattr(numa, field)
            assert right == facts.complete(section), section
            if not right:
                seen.add((section, getattr(facts, field) is None))
    assert seen == {(section, missing) for section in fields for missing in (True, False)}
