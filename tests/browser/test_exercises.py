"""Verdicts of the exercises where the reader sees them: beneath the cell, in words, escaped."""

import pytest

pytestmark = pytest.mark.browser

RIGHT = """
from attnlab.exercises import check_merge_heads, check_number
check_number(42, 42, unit="bytes")
"""
MISTAKEN = 'check_number(21, 42, unit="bytes", mistakes={21: "<img src=x> keys alone & no more"})'
RAISES = """
def merge_heads(out):
    raise RuntimeError("<script>document.title = 'taken'</script>")
check_merge_heads(merge_heads)
"""


def test_verdicts_appear(opened):
    notebook = opened("exercises.ipynb", [RIGHT, MISTAKEN, RAISES])
    notebook.run_all()
    right, mistaken, raises = (
        notebook.output(number).get_by_role("note").inner_text() for number in range(3)
    )
    assert right == "✓ Right. 42 bytes."
    assert mistaken.startswith("✗ Not yet.")
    assert "<img src=x> keys alone & no more" in mistaken
    assert raises.startswith("✗ Not yet.")
    assert "<script>document.title = 'taken'</script>" in raises
    assert notebook.page.title() != "taken"
