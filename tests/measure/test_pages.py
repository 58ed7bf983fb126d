"""A cache in pages: counts against a cache that is filled token by token."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.measure.pages import Pages, pages, read


def filled(lengths: list[int], size: int, prefix: int) -> Pages:
    """Every text token by token; a page is found again by all tokens up to its end."""
    found: dict[tuple[object, ...], int] = {}
    for number, n in enumerate(lengths):
        tokens = [("shared", at) if at < prefix else (number, at) for at in range(n)]
        for start in range(0, n, size):
            page = tokens[start : start + size]
            whole = len(page) == size
            found[tuple(tokens[: start + size]) if whole else ("own", number)] = len(page)
    return Pages(len(found), sum(size - used for used in found.values()))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 7), st.integers(0, 15))
def test_pages_are_those_of_a_cache_that_is_filled(
    beyond: list[int], size: int, prefix: int
) -> None:
    lengths = [prefix + more for more in beyond]
    lengths = [number + n + 1 for number, n in enumerate(lengths)]  # no two texts are the same
    assert pages(lengths, size, prefix=prefix) == filled(lengths, size, prefix)


def test_by_hand() -> None:
    assert pages([1000], 16) == Pages(63, 8)
    assert pages([], 16) == Pages(0, 0)
    assert pages([1024] * 8, 16, prefix=1000) == Pages(62 + 8 * 2, 0)
    assert pages([1024] * 8, 16).pages == 512


def test_what_is_read_from_pages_is_the_text() -> None:
    text = torch.randn(21, 3, 4, generator=torch.Generator().manual_seed(0))
    store, table = torch.zeros(10, 5, 3, 4), torch.tensor([7, 2, 9, 0, 4])
    for at, token in enumerate(text):
        store[table[at // 5], at % 5] = token
    assert torch.equal(read(store, table, 21), text)
    with pytest.raises(ValueError, match="holds no 26 tokens"):
        read(store, table, 26)


@pytest.mark.parametrize(
    ("lengths", "size", "prefix", "words"),
    [([4], 0, 0, "size"), ([0], 4, 0, "a length"), ([4], 4, -1, "prefix"), ([4], 4, 5, "begin")],
)
def test_refusals(lengths: Any, size: Any, prefix: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pages(lengths, size, prefix=prefix)
