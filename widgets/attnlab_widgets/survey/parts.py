"""The survey's rows of the other shelves: what the pages of a role claim, by the names of their
claims."""

from typing import Any

from attnlab.catalog import TITLES, cards
from attnlab.core.card import Card
from attnlab_widgets.card_maps import links

ORDERS = {"name": "title", "year": "year"}
"""By what these rows can be sorted."""


def rows() -> list[dict[str, Any]]:
    """A row for every page of the other shelves."""
    return [row_of(card) for card in cards() if card.role in TITLES]


def row_of(card: Card) -> dict[str, Any]:
    addresses = {text.split()[0]: [url, text] for url, text in links(card.name)}
    return {
        "name": card.name,
        "title": card.title,
        "role": card.role,
        "year": card.paper.year,
        "claims": [[label, text] for label, text in card.claims.rows()],
        "forms": card.forms_text(),
        "page": addresses.get("page"),
        "lesson": addresses.get("lesson"),
    }


def shown(rows: list[dict[str, Any]], survey: Any) -> list[dict[str, Any]]:
    """The rows of the chosen role that pass the filter, as ``arrangedParts`` of ``rows.js``."""
    words = survey.search.casefold()
    kept = [
        row
        for row in rows
        if row["role"] == survey.shelf and words in f"{row['title']} {row['name']}".casefold()
    ]
    if survey.order in ORDERS:
        kept.sort(key=lambda row: _sortable(row[ORDERS[survey.order]]), reverse=survey.down)
    return kept


def _sortable(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value
