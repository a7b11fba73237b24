"""A message has a few names and a number, however many things others changed."""

from agent.model.mirror import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.placement.mirror import log_changes, log_losses

MANY = 8000
UUIDS = [ProviderUuid(f"{number:08}") for number in range(MANY)]


def test_few_names_of_many_deleted_providers(caplog):
    names = [f"node_{number:04}" for number in range(MANY)]
    log_changes(names, ())
    log_changes(names[:1], names[1:])
    log_changes(names[:5], ())
    first, back, all_named = (record.getMessage() for record in caplog.records)
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004 and 7995 more)" in first
    assert "node_0004 and 7995 more)" in back
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004);" in all_named


def test_few_of_many_providers_that_lost_traits(caplog):
    traits = frozenset(("CUSTOM_A",))
    lost = log_of_losses(traits, UUIDS[:20], caplog)
    assert lost[0] == "provider p00000001 lost traits that the agent had set: CUSTOM_A"
    assert len(lost) == 6
    assert lost[5] == "14 more providers lost traits that the agent had set"
    assert len(log_of_losses(traits, UUIDS[:6], caplog)) == 5


def log_of_losses(traits, uuids, caplog):
    """The messages when all providers but the root, whose write had an unknown outcome, have lost
    their traits.
    """
    before, after = ProviderTree(), ProviderTree()
    for tree in (before, after):
        tree.populate_from_iterable(
            {
                "uuid": uuid,
                "name": f"p{uuid}",
                "parent_uuid": uuids[0] if uuid != uuids[0] else None,
            }
            for uuid in uuids
        )
    for uuid in uuids:
        before.update_traits(uuid, traits)
    caplog.clear()
    journal = Journal({uuid: Ownership(traits=traits) for uuid in uuids})
    log_losses(PresentTree(before), PresentTree(after), uuids[0], journal, frozenset(uuids[:1]))
    return [record.getMessage() for record in caplog.records]
