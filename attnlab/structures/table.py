"""A table of texts: a header that names the columns, and rows of one cell for each column.

A model that reads one row or one column at a time is given it as a text of its own (Glass et al.
2021): a row with the name of its column before each cell, a column with its name once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.core.integers import check_integer


@dataclass(frozen=True)
class Table:
    """``Table(["code", "phrase"], [["200", "ok"], ["404", "not found"]])``."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        names = _texts("the header of a table", header)
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise TypeError(f"the rows of a table should be a list of rows, got {rows!r}")
        cells = tuple(_texts(f"row {i} of a table", row) for i, row in enumerate(rows))
        if not names or not cells:
            raise ValueError(
                "a table has at least one column and one row, got "
                f"{len(names)} columns and {len(cells)} rows"
            )
        for i, row in enumerate(cells):
            if len(row) != len(names):
                raise ValueError(
                    f"row {i} has {len(row)} cells, but the header names {len(names)} columns; "
                    "give every row one cell for each column, '' where there is nothing in it"
                )
        if len(set(names)) < len(names):
            raise ValueError(f"the columns of a table have different names, got {list(names)}")
        object.__setattr__(self, "header", names)
        object.__setattr__(self, "rows", cells)

    def row_text(self, row: int) -> str:
        """Row ``row`` as a text: ``code : 404 * phrase : not found``."""
        check_integer("row", row)
        if not 0 <= row < len(self.rows):
            raise ValueError(f"row should be 0 … {len(self.rows) - 1}, got {row}")
        named = zip(self.header, self.rows[row], strict=True)
        return " * ".join(f"{name} : {cell}" for name, cell in named)

    def column_text(self, column: int) -> str:
        """Column ``column`` as a text: ``code * 200 * 404``."""
        check_integer("column", column)
        if not 0 <= column < len(self.header):
            raise ValueError(f"column should be 0 … {len(self.header) - 1}, got {column}")
        return " * ".join([self.header[column], *(row[column] for row in self.rows)])

    def cells_with(self, answer: str) -> list[tuple[int, int]]:
        """(row, column) of every cell that holds ``answer``; a ValueError where none does."""
        found = [
            (i, j) for i, row in enumerate(self.rows) for j, cell in enumerate(row)
            if cell == answer
        ]  # fmt: skip
        if not found:
            raise ValueError(
                f"no cell of the table holds {answer!r}, so it answers no question about it"
            )
        return found


@dataclass(frozen=True)
class TableQuestion:
    """A question about a table, and the cell that answers it."""

    table: Table
    question: str
    row: int
    column: int

    def __post_init__(self) -> None:
        if not isinstance(self.table, Table):
            raise TypeError(f"table should be a Table, got a {type(self.table).__name__}")
        if not isinstance(self.question, str):
            raise TypeError(f"question should be a text, got {self.question!r}")
        for name in ("row", "column"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name)))
        rows, columns = len(self.table.rows), len(self.table.header)
        if not (0 <= self.row < rows and 0 <= self.column < columns):
            raise ValueError(
                f"the answer to {self.question!r} should be a cell in rows 0 … {rows - 1} and "
                f"columns 0 … {columns - 1} of the table, got row {self.row}, column {self.column}"
            )

    @property
    def answer(self) -> str:
        """The text of the cell."""
        return self.table.rows[self.row][self.column]


def _texts(what: str, texts: object) -> tuple[str, ...]:
    listed = isinstance(texts, Sequence) and not isinstance(texts, str | bytes)
    if not listed or not all(isinstance(text, str) for text in texts):  # type: ignore[attr-defined]
        raise TypeError(f"{what} should be a list of strings, got {texts!r}")
    return tuple(texts)  # type: ignore[arg-type]
