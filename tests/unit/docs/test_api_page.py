"""docs/api.md is what the API is."""

from __future__ import annotations

from pathlib import Path

from marketplace.process import reference
from tests.unit.support.golden import golden

PAGE = Path(__file__).parents[3] / "docs" / "api.md"


def test_the_page_is_generated_from_the_openapi_document() -> None:
    openapi = reference.schema()
    assert PAGE.read_text() == reference.page(PAGE.read_text(), openapi), (
        "run: python -m marketplace.process.reference docs/api.md"
    )
    for path in openapi["paths"]:
        assert f" {path}`" in PAGE.read_text()


def test_the_whole_document_is_pinned() -> None:
    """What programs that others generated from it rely on."""
    golden("openapi.json", reference.schema())
