"""Linked pages: one page is right, and only the links tell which."""

import pydoc
from pydoc_data.topics import topics

import pytest
import torch

from attnlab.tasks.linked_pages import (
    TITLE_WORDS,
    LinkedPages,
    documentation,
    paths,
    title_words,
)

TASKS = [LinkedPages(), LinkedPages(hops=2, pages=8, words=5)]


def reached(links: list[tuple[int, int]], start: int, hops: int) -> set[int]:
    """The ends of paths of exactly so many links."""
    found = {start}
    for _ in range(hops):
        found = {b for a, b in links if a in found}
    return found


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("task", TASKS, ids=["one hop", "two hops"])
def test_of_two_pages_with_the_word_one_is_reached(task: LinkedPages, split: str) -> None:
    answers, starts = [], []
    for row in task.rows(split, 60, seed=1):
        having = {i for i, words in enumerate(row.words) if row.word in words}
        assert len(having) == 2
        shorter = {end for hops in range(task.hops) for end in reached(row.links, row.named, hops)}
        assert having & reached(row.links, row.named, task.hops) == {row.answer}
        assert row.answer not in shorter
        (other,) = having - {row.answer}
        ways = [i for i in range(task.pages) if other in reached(row.links, i, task.hops)]
        assert ways  # as the right page, it is the end of a path
        assert not {row.word} & {word for title in row.pages for word in title_words(title)}
        assert len(set(row.pages)) == task.pages
        answers.append(row.answer)
        starts.append(row.named)
    assert set(answers) == set(starts) == set(range(task.pages))  # places tell nothing


def test_links_are_the_cross_references_of_help() -> None:
    own = documentation()
    assert own.links["while"] == ["break", "continue", "if", "truth"]
    for title, ends in own.links.items():
        assert title not in ends
        entries = list({**pydoc.Helper.keywords, **pydoc.Helper.topics}.values())
        names = " ".join(e[1] for e in entries if isinstance(e, tuple) and e[0] == title).split()
        assert len(ends) <= len(names)
        assert set(ends) <= set(own.titles)
    assert own.links["break"] == ["for", "while"]
    assert "exceptions" in own.links["try"]


def test_texts_are_words_of_the_topics_in_order() -> None:
    own = documentation()
    for title in ("while", "string-methods"):
        left = topics[title].lower()
        for word in own.texts[title]:
            assert word in left
            left = left[left.index(word) + len(word) :]
    assert all(text for text in own.texts.values())


def test_no_pair_of_named_and_answering_page_is_in_both_splits() -> None:
    for hops in (1, 2):
        both = (paths(hops, split) for split in ("train", "validation"))
        pairs = [{(path[0], path[-1]) for path in each} for each in both]
        assert pairs[0].isdisjoint(pairs[1])
        assert len(pairs[1]) > 20
    own = documentation()
    every = {(title, end) for title in own.titles for end in own.links[title]}
    assert {path for split in ("train", "validation") for path in paths(1, split)} == every


@pytest.mark.parametrize("task", TASKS, ids=["one hop", "two hops"])
def test_pages_of_a_batch_are_those_of_its_rows(task: LinkedPages) -> None:
    batch, rows = task.batch("train", 3, seed=7), task.rows("train", 3, seed=7)
    tokens, pairs, links = task.of_pages(batch)
    assert tokens.shape == (3 * task.pages, task.page_length)
    for r, row in enumerate(rows):
        graph = links.graph(r)
        assert sorted(map(tuple, graph.edges.tolist())) == sorted(row.links)
        assert graph.nodes == task.pages
        for p, (title, words) in enumerate(zip(row.pages, row.words, strict=True)):
            at = r * task.pages + p
            asked = ["[cls]", *title_words(row.pages[row.named]), row.word, "[sep]"]
            text = [*title_words(title), "[sep]", *words]
            assert task.tokens(tokens[at][pairs.padding[at]]) == asked + text
            assert task.tokens(tokens[at][pairs.in_text[at]]) == text
    assert batch.targets.tolist() == [row.answer for row in rows]
    edges = sum(len(row.links) for row in rows)
    assert len(batch.structure.sources) == edges
    assert (batch.structure.sources % task.page_length == 0).all()
    assert torch.equal(batch.padding, batch.structure.padding)


def test_titles_are_told_apart_by_their_words() -> None:
    titles = [tuple(title_words(title)) for title in documentation().titles]
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= TITLE_WORDS


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hops": 3, "pages": 9}, "hops should be 1 or 2, got 3"),
        ({"hops": 0}, "hops should be at least 1, got 0"),
        ({"pages": 3}, "pages should be at least 4, got 3"),
        ({"hops": 2, "pages": 5}, "with hops=2 a row has 6 to .* pages"),
        ({"pages": 500}, "with hops=1 a row has 4 to .* pages, which are two paths of links"),
        ({"words": 0}, "words should be at least 1, got 0"),
    ],
)
def test_options_that_make_no_rows_are_refused(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        LinkedPages(**options)
