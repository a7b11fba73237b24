"""Which tombstones there are: what was taken back, as long and as many as are worth it."""

from agent.model.mirror import Journal, Ownership, Tombstone
from agent.model.names import ProviderUuid
from agent.placement import tombstones
from agent.placement.tombstones import next_tombstones

ROOT, CARD = ProviderUuid("root"), ProviderUuid("card")
OWN = Ownership(frozenset({"VCPU"}), frozenset({"CUSTOM_GOLD"}), frozenset({"agg"}))
NOTHING = Journal()


def test_what_is_ours_no_more_has_a_tombstone_and_what_is_wanted_again_has_none():
    before, after = Journal({ROOT: OWN, CARD: Ownership()}), Journal({ROOT: Ownership(OWN.classes)})
    marks = next_tombstones(before, after, after, 5.0)
    gone = [
        Tombstone(ROOT, "trait", "CUSTOM_GOLD"),
        Tombstone(ROOT, "aggregate", "agg"),
        Tombstone(CARD, "provider"),
    ]
    assert marks == dict.fromkeys(gone, 5.0)
    later = Journal(after.providers, tombstones=marks)
    assert next_tombstones(later, after, after, 6.0) == marks
    assert next_tombstones(later, before, before, 6.0) == {}


def test_while_it_is_being_taken_back_again_its_tombstone_stays():
    known = Journal({ROOT: OWN}, tombstones={Tombstone(CARD, "provider"): 1.0})
    either = Journal({ROOT: OWN, CARD: Ownership()})
    assert next_tombstones(known, either, Journal({ROOT: OWN}), 2.0) == known.tombstones


def test_old_ones_and_the_oldest_of_too_many_go(monkeypatch):
    monkeypatch.setattr(tombstones, "NUMBER", 2)
    known = Journal(
        tombstones={
            Tombstone(ROOT, "trait", f"CUSTOM_{number}"): float(number) for number in range(3)
        }
    )
    assert next_tombstones(known, NOTHING, NOTHING, 10.0) == {
        Tombstone(ROOT, "trait", f"CUSTOM_{number}"): float(number) for number in (1, 2)
    }
    assert next_tombstones(known, NOTHING, NOTHING, tombstones.AGE + 1.5) == {
        Tombstone(ROOT, "trait", "CUSTOM_2"): 2.0
    }
    # Of what went at once, the providers stay longest.
    assert next_tombstones(Journal({ROOT: OWN, CARD: OWN}), NOTHING, NOTHING, 1.0).keys() == {
        Tombstone(ROOT, "provider"),
        Tombstone(CARD, "provider"),
    }
