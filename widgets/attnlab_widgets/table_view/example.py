"""What questions to a table of rivers lead to."""

from collections.abc import Sequence

from attnlab.structures.table import Table, TableQuestion
from attnlab_widgets.table_view import TableView


def example() -> TableView:
    """What three questions to a table of rivers lead to: the answer, a wrong row, both wrong."""
    rows = [
        ["Danube", "Black Sea", "2850", "Vienna"],
        ["Rhine", "North Sea", "1230", "Basel"],
        ["Rhône", "Mediterranean", "810", "Lyon"],
        ["Tagus", "Atlantic", "1010", "Lisbon"],
        ["Po", "Adriatic", "650", "Turin"],
    ]
    rivers = Table(["river", "flows into", "length in km", "a city"], rows)
    asked = [
        ("Into which sea does the Rhine flow?", [-1.2, 3.4, 1.9, -2, -2.6], [0.3, 2.8, -1.1, -0.4]),
        ("How long is the Rhône?", [-0.9, 2.2, 2.1, -1.5, -2], [-1, 0, 3.1, -1.7]),
        ("Which river is at Lisbon?", [1.4, 0.6, 0.2, 1.1, -1], [0.8, 0, -2, 1.5]),
        ("Which of the cities is best?", [0.1, 0.2, 0.3, 0.2, 0.1], [0, 0, 0, 1]),
    ]
    texts, sides, tops = zip(*asked, strict=True)
    answers = zip(texts[:3], [(1, 1), (2, 2), (3, 0)], strict=True)
    questions = [TableQuestion(rivers, text, *cell) for text, cell in answers]
    return TableView([*questions, (rivers, texts[3])], sides, tops)


def hostile(words: Sequence[str]) -> TableView:
    first, *rest = words
    cells = Table([first, rest[0]], [[one, one] for one in rest])
    return TableView([(cells, first)], [[0.0] * len(rest)], [[0.0, 1.0]])
