"""Documents that cite documents."""

import pytest
import torch

from attnlab.tasks import task
from attnlab.tasks.citations import bags_of_words, citations, others, reciprocal_rank
from attnlab.tasks.linked_pages import documentation


def test_one_of_two_documents_is_cited_and_the_answer_says_which() -> None:
    problem, own = task("citations", words=5), documentation()
    tokens, _ = problem.documents()
    batch = problem.batch("train", 60, seed=1)
    rows = batch.inputs.view(60, 3, -1)
    title_of = {
        tuple(document.tolist()): title for document, title in zip(tokens, own.titles, strict=True)
    }
    assert batch.padding.view(60, 3, -1)[:, :, 0].all()
    triplets = problem.triplets("train", 60, seed=1)
    for row, answer, drawn in zip(rows, batch.targets, triplets, strict=True):
        citing, *two = (title_of[tuple(document.tolist())] for document in row)
        cited, other = two[answer], two[1 - answer]
        assert (citing, cited, other) == drawn
        assert cited in own.links[citing]
        assert other not in own.links[citing]
        assert citing not in own.links[other]
        assert other != citing
    assert set(batch.targets.tolist()) == {0, 1}


@pytest.mark.parametrize(("hard", "least"), [(0.0, 0), (1.0, 1)])
def test_a_hard_negative_is_cited_by_what_is_cited(hard, least) -> None:
    own = documentation()
    shares = []
    for citing, _, other in task("citations", hard=hard).triplets("train", 300, seed=0):
        two_links = {end for cited in own.links[citing] for end in own.links[cited]}
        shares.append(other in two_links)
    share = sum(shares) / 300
    assert share == pytest.approx(1, abs=0.06) if hard else share < 0.35
    assert any(shares)


def test_no_pair_is_in_both_splits_in_either_direction() -> None:
    train, validation = (
        {frozenset(pair) for pair in citations(s)} for s in ("train", "validation")
    )
    assert not train & validation
    assert 20 < len(validation) < len(train)
    assert len(citations("train")) + len(citations("validation")) == sum(
        map(len, documentation().links.values())
    )


def test_the_worked_rank() -> None:
    """Vectors in which every topic but the citing ones stands at 0 are ties: half of the others."""
    topics = len(documentation().titles)
    flat = reciprocal_rank(torch.zeros(topics, 3))
    expected = [1 / (1 + 0.5 * len(others(citing)[1])) for citing, _ in citations("validation")]
    assert flat == pytest.approx(sum(expected) / len(expected))
    (citing, cited), place = citations("train")[0], documentation().titles.index
    line = torch.arange(2, topics + 2)[:, None].double()
    line[place(citing)], line[place(cited)] = 0, 1
    assert reciprocal_rank(line, "train") > 1 / len(citations("train"))


def test_words_alone_find_more_than_chance() -> None:
    chance = reciprocal_rank(torch.randn(len(documentation().titles), 16))
    assert reciprocal_rank(bags_of_words()) > 3 * chance
    assert reciprocal_rank(bags_of_words()) > reciprocal_rank(bags_of_words(8))


def test_what_does_not_fit_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="hard"):
        task("citations", hard=1.5)
    with pytest.raises(ValueError, match="words"):
        task("citations", words=0)
