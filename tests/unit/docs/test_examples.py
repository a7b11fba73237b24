"""Examples that stand in a page are the files that are shipped."""

from tests.support.child import CHECKOUT
from tests.support.pages import blocks


def test_the_example_of_provider_files_is_the_shipped_one() -> None:
    (shown,) = (
        block
        for block in blocks(CHECKOUT / "docs" / "provider-configuration.md")
        if block.language == "yaml"
    )
    shipped = CHECKOUT / "etc" / "provider_config" / "example.yaml"
    assert shown.text + "\n" == shipped.read_text(encoding="utf-8")


def test_the_containerfile_of_the_page_is_the_shipped_one() -> None:
    (shown,) = (
        block
        for block in blocks(CHECKOUT / "docs" / "containers.md")
        if block.language == "dockerfile"
    )
    shipped = CHECKOUT / "etc" / "container" / "Containerfile"
    assert shown.text + "\n" == shipped.read_text(encoding="utf-8")
