import pytest

from agent.cli.commands.claims import guests_exit_code
from agent.model.finding import CHANGED, DONE, FAILED, PARTLY


def node(*outcomes, errors=()):
    return {"errors": list(errors), "guests": [{"outcome": one} for one in outcomes]}


@pytest.mark.parametrize(
    ("nodes", "plain", "detailed"),
    [
        ([], DONE, DONE),
        ([node("known", "elsewhere")], DONE, DONE),
        ([node("known", "imported")], DONE, CHANGED),
        ([node("importable")], DONE, CHANGED),
        ([node("imported", "refused")], PARTLY, PARTLY),
        ([node("known", "refused")], FAILED, FAILED),
        ([node("known", "refused"), node("known")], PARTLY, PARTLY),
        ([node(errors=["?"])], FAILED, FAILED),
        ([node("imported", errors=["?"])], PARTLY, PARTLY),
    ],
)
def test_an_import_ends_with_what_became_of_the_guests(nodes, plain, detailed):
    assert guests_exit_code(nodes, done=("importable", "imported"), failed=("refused",)) == plain
    assert (
        guests_exit_code(nodes, done=("importable", "imported"), failed=("refused",), detailed=True)
        == detailed
    )
