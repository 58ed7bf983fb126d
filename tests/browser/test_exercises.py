"""Verdicts of the exercises where the reader sees them: beneath the cell, in words, escaped."""

import re

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


def test_verdicts_appear(opened, expect):
    notebook = opened("exercises.ipynb", [RIGHT, MISTAKEN, RAISES])
    notebook.run_all()
    right, mistaken, raises = (notebook.output(number).get_by_role("note") for number in range(3))
    expect(right).to_have_text("✓ Right. 42 bytes.")
    expect(mistaken).to_have_text(re.compile("^✗ Not yet."))
    expect(mistaken).to_contain_text("<img src=x> keys alone & no more")
    expect(raises).to_have_text(re.compile("^✗ Not yet."))
    expect(raises).to_contain_text("<script>document.title = 'taken'</script>")
    assert notebook.page.title() != "taken"
