"""The atlas: each text by itself, deciles, and the texts in which a planted head is strong."""

import numpy as np
import pytest
import torch

from attnlab.lens.head_atlas import NAMES, HeadAtlas
from attnlab.lens.head_kinds import HeadFinder
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

N = 5


def towards_previous(share):
    """(n, n) causal: ``share`` to the token before, the rest to the token itself."""
    rows = torch.eye(N) * (1 - share)
    rows[range(1, N), range(N - 1)] = share
    rows[0] = torch.eye(N)[0]
    return rows


def planted_atlas(shares, texts=None):
    """Head 0.0 attends to the token before by another share in every text, head 0.1 to itself."""
    weights = torch.stack([torch.stack([towards_previous(s), torch.eye(N)]) for s in shares])
    tokens = torch.arange(N).expand(len(shares), N) if texts is None else texts
    atlas = HeadAtlas()
    mask = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
    for start in range(0, len(shares), 3):  # batches
        some = slice(start, start + 3)
        atlas.add({"layer": weights[some]}, tokens[some], mask=mask)
    return atlas.found()


SHARES = [0.3, 0.9, 0.1, 0.5, 0.7, 0.0, 0.8, 0.2, 0.6, 0.4, 1.0]


def test_each_text_has_its_own_number() -> None:
    atlas = planted_atlas(SHARES)
    assert atlas.heads == [(0, 0), (0, 1)]
    assert atlas.values("previous").shape == (2, 11)
    np.testing.assert_allclose(atlas.values("previous")[0], SHARES, atol=1e-6)
    np.testing.assert_allclose(atlas.values("previous")[1], 0)
    np.testing.assert_allclose(atlas.values("same")[1], 1)
    sharpest = atlas.values("entropy")[0]
    assert sharpest[5] == sharpest[10] == pytest.approx(0)
    assert sharpest.argmax() == 3  # half and half


def test_deciles_and_how_often() -> None:
    atlas = planted_atlas(SHARES)
    np.testing.assert_allclose(atlas.deciles("previous")[0], np.linspace(0, 1, 11), atol=1e-6)
    np.testing.assert_allclose(atlas.often("previous", 0.55), [5 / 11, 0])
    rows = atlas.rows()
    assert [row["head"] for row in rows] == [0, 1]
    assert rows[0]["previous, 10 %"] == pytest.approx(0.1)
    assert rows[0]["previous"] == pytest.approx(0.5)
    assert rows[0]["previous, 90 %"] == pytest.approx(0.9)
    assert rows[1]["kind"] == "same token"
    assert "0.50 (0.10–0.90)" in repr(atlas)
    assert "11 texts" in repr(atlas)


def test_the_texts_in_which_the_head_is_strong_middling_and_idle() -> None:
    atlas = planted_atlas(SHARES)
    found = atlas.examples(0, 0, "previous", 2)
    assert found.strong == [10, 1]  # 1.0 and 0.9
    assert found.idle == [5, 2]  # 0.0 and 0.1
    assert set(found.middling) <= {9, 3, 8}  # 0.4, 0.5, 0.6
    assert atlas.examples(0, 0, "previous", 1).middling == [3]
    parts = atlas.by_decile(0, 0, "previous")
    assert len(parts) == 10
    assert sorted(text for part in parts for text in part) == [*range(11)]
    assert parts[0][0] == 5
    assert parts[-1] == [10]
    assert [SHARES[text] for part in parts for text in part] == sorted(SHARES)


def test_all_texts_together_are_what_the_head_finder_says() -> None:
    model = TinyTransformer(9, dim=8, layers=2, heads=2, max_len=32)
    batches = [torch.randint(9, (3, 7)), torch.randint(9, (2, 13))]
    padding = torch.ones(2, 13, dtype=torch.bool)
    padding[1, 6:] = False
    atlas, finder, alone = HeadAtlas(), HeadFinder(), HeadAtlas()
    for batch, real in zip(batches, (None, padding), strict=True):
        with watch(model) as seen:
            model(batch, real)
        atlas.add(seen, batch, padding=real)
        finder.add(seen, batch, padding=real)
    found, whole = atlas.found(), finder.found()
    for ours, theirs in zip(found.whole, whole, strict=True):
        assert ours.kind == theirs.kind
        assert ours.queries == theirs.queries
        np.testing.assert_allclose([*ours.shares.values()], [*theirs.shares.values()])
        np.testing.assert_allclose(ours.positional, theirs.positional)
    assert found.texts[0] == batches[0][0].tolist()
    assert found.texts[4] == batches[1][1, :6].tolist()  # without its padding
    with watch(model) as seen:
        model(batches[1][1:, :6])
    alone.add(seen, batches[1][1:, :6])
    for name in NAMES:
        of_text = found.values(name)[:, 4]
        np.testing.assert_allclose(of_text, alone.found().values(name)[:, 0], atol=1e-6)


def test_the_planted_induction_head_is_strong_where_something_repeats(
    planted: TinyTransformer,
) -> None:
    texts = torch.tensor([[0, 1, 2, 1, 2, 1], [0, 1, 2, 3, 4, 1], [0, 1, 2, 3, 4, 5]])
    atlas = HeadAtlas()
    with watch(planted) as seen:
        planted(texts)
    atlas.add(seen, texts)
    found = atlas.found()
    at = found.heads.index((1, 1))
    values = found.values("induction")[at]
    np.testing.assert_allclose(values[:2], 1, atol=1e-3)
    assert np.isnan(values[2])  # nothing repeats, so it has no such query
    examples = found.examples(1, 1, "induction", 5)
    assert examples.idle == examples.strong[::-1]
    previous = found.values("previous")[found.heads.index((0, 0))]
    np.testing.assert_allclose(previous, 1, atol=1e-3)
    assert found.often("previous", 0.9)[found.heads.index((0, 0))] == 1


def test_delimiters_need_texts() -> None:
    texts = [["a", ".", "b", ".", "c"]] * 2
    found = planted_atlas([0.25, 0.75], texts)
    assert np.isfinite(found.values("delimiter")).all()
    assert found.texts[1] == texts[1]
    assert np.isnan(planted_atlas([0.5]).values("delimiter")).all()
    with pytest.raises(ValueError, match="no text has a query for 'delimiter'"):
        planted_atlas([0.5]).examples(0, 0, "delimiter")
    assert np.isnan(planted_atlas([0.5]).deciles("delimiter")).all()
    assert np.isnan(planted_atlas([0.5]).often("delimiter", 0.1)).all()


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="no batch was added yet"):
        HeadAtlas().found()
    atlas = HeadAtlas()
    atlas.add({"a": torch.eye(N).expand(1, 2, N, N)}, torch.arange(N)[None])
    with pytest.raises(ValueError, match="the layers should be those of the batches before"):
        atlas.add({"b": torch.eye(N).expand(1, 2, N, N)}, torch.arange(N)[None])
    with pytest.raises(ValueError, match="tokens are 2 sequences of 5"):
        atlas.add({"a": torch.eye(N).expand(1, 2, N, N)}, torch.arange(N).expand(2, N))
    assert len(atlas.found().texts) == 1  # a refused batch leaves nothing
    found = planted_atlas(SHARES)
    with pytest.raises(ValueError, match="no statistic 'previus'; did you mean 'previous'"):
        found.values("previus")
    with pytest.raises(ValueError, match="there is no head 2 in layer 0; the last is"):
        found.examples(0, 2, "previous")
    with pytest.raises(ValueError, match="count should be at least 1"):
        found.examples(0, 0, "previous", 0)
