"""Rows, verdicts and tables."""

import json

import pytest

from attnlab.measure.report import Row, from_plain, machine, machine_line, plain, table


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row("f", 1.05, at_most=1.05), True),
        (Row("f", 1.06, at_most=1.05), False),
        (Row("f", 1.0, at_least=1.0), True),
        (Row("f", 0.99, at_least=1.0), False),
        (Row("f", 3.0), None),
        (Row("f", None, at_most=1.0), None),
    ],
)
def test_verdicts(row, met):
    assert row.met is met
    assert json.loads(json.dumps(plain(row))).get("met") is met


def test_a_row_is_read_as_it_was_and_says_no_more_than_it_has():
    for row in ROWS:
        assert from_plain(json.loads(json.dumps(plain(row)))) == row
    assert plain(Row("f", None)) == {"figure": "f", "measured": None, "unit": ""}
    assert plain(Row("f", 0.0, "s", at_least=1.0)) == {
        "figure": "f", "measured": 0.0, "unit": "s", "at_least": 1.0, "met": False
    }  # fmt: skip


ROWS = [
    Row("ratio", 1.0347, "×", at_most=1.05, quartiles=(1.0, 1.1), note="2 ms"),
    Row("speed", 12345.6, "tokens/s", at_least=99999),
    Row("peer", None, note="not here"),
]


def test_table_says_target_measured_and_met():
    heading, _, *lines = (" ".join(line.split()) for line in table(ROWS).splitlines())
    assert heading == "figure measured quartiles target met note"
    assert lines == [
        "ratio 1.03 × 1.00 – 1.10 ≤ 1.05 × yes 2 ms",
        "speed 12,346 tokens/s ≥ 99,999 tokens/s NO",
        "peer not measured not here",
    ]


def test_table_is_aligned():
    heading, rule, first, second, _ = table(ROWS).splitlines()
    assert heading.index("measured") + len("measured") == first.index(" ×") + 2
    assert second.index("tokens/s") + len("tokens/s") == first.index(" ×") + 2
    assert len(rule) >= len(first)


def test_markdown_table_has_one_rule_and_equal_columns():
    lines = table(ROWS, markdown=True).splitlines()
    assert {line.count("|") for line in lines} == {7}
    assert set(lines[1]) == set("|-: ")


def test_columns_without_content_are_left_out():
    assert table([Row("a", 2.0)]).splitlines()[0].split() == ["figure", "measured"]


def test_machine_is_described():
    described = machine(2)
    assert described["threads"] == "2"
    assert {"processor", "cores", "torch", "python"} <= set(described)
    assert f"torch: {described['torch']}" in machine_line(described)
