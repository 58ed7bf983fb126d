"""Search by dot product: exact, in pieces and groups, and by codes."""

import sys

import pytest
import torch
from torch import Tensor

from attnlab.core import search
from attnlab.core.search import Codes, Index, Lookup, nearest, recall


def made(m: int = 5000, d: int = 16, n: int = 20) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randn(m, d), torch.randn(n, d)


@pytest.mark.parametrize(("m", "k"), [(1, 1), (7, 7), (41, 5), (640, 3), (4096, 1), (12_289, 200)])
@pytest.mark.parametrize("at_once", [1, 1 << 21])
def test_the_nearest_are_those_of_all_products(
    m: int, k: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of 4,096 keys, and in one."""
    monkeypatch.setattr(search, "AT_ONCE", at_once)
    torch.manual_seed(m)
    q, keys = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (5, m))
    assert torch.equal(nearest(q, keys, k), (q @ keys.mT).topk(k).indices)
    found = Index(keys[0, 0]).search(q[0, 0], k)
    best, positions = (q[0, 0] @ keys[0, 0].T).topk(k)
    assert torch.equal(found.positions, positions)
    torch.testing.assert_close(found.scores, best)


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_hidden_keys_are_not_found(kind: str) -> None:
    if kind == "approximate":
        pytest.importorskip("faiss", reason="for the approximate search")
    torch.manual_seed(3)
    q, keys = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 2000, 16)
    seen = torch.rand(2, 2000) > 0.5
    seen[0, 4:] = False
    found = nearest(q, keys, 6, seen=seen, search=kind)
    real = torch.arange(2000).expand(2, -1).masked_fill(~seen, -5)
    assert torch.isin(found[1], real[1]).all()
    assert torch.isin(found[0], real[0]).sum() == 3 * 7 * int(seen[0].sum())
    assert (found[0, :, :, int(seen[0].sum()) :] == search.NOTHING).all()
    scores = (q @ keys.mT).masked_fill(~seen[:, None, None], -torch.inf)
    exact = scores.topk(6).indices
    assert recall(found[1], exact[1]) > (0.85 if kind == "approximate" else 0.999)
    seen[:] = False
    assert (nearest(q, keys, 6, seen=seen, search=kind) == search.NOTHING).all()


def test_faiss_finds_the_same() -> None:
    faiss = pytest.importorskip("faiss", reason="beside its exact index")
    keys, q = made()
    theirs = faiss.IndexFlatIP(16)
    theirs.add(keys.numpy())
    scores, positions = theirs.search(q.numpy(), 10)
    found = Index(keys).search(q, 10)
    assert torch.equal(found.positions, torch.from_numpy(positions))
    torch.testing.assert_close(found.scores, torch.from_numpy(scores))


def test_more_candidates_find_more() -> None:
    pytest.importorskip("faiss", reason="for the approximate search")
    keys, q = made()
    exact = Index(keys).search(q, 10)
    shares = []
    for candidates in (1, 4, 16):
        near = Index(keys, Codes(candidates=candidates)).search(q, 10)
        torch.testing.assert_close(near.scores, (q @ keys.T).gather(1, near.positions))
        shares.append(recall(near.positions, exact.positions))
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.95


def test_more_probed_lists_find_more() -> None:
    pytest.importorskip("faiss", reason="for the approximate search")
    torch.manual_seed(6)
    centres = 2 * torch.randn(50, 16)
    keys, q = (centres[torch.randint(50, (n,))] + torch.randn(n, 16) for n in (6000, 30))
    exact = Index(keys).search(q, 10).positions
    shares = []
    for probed in (1, 4, 50):
        codes = Codes(candidates=16, lists=50, probed=probed)
        shares.append(recall(Index(keys, codes).search(q, 10).positions, exact))
    assert shares[0] < shares[1] <= shares[2]
    assert shares[2] > 0.99


def test_a_lookup_of_few_keys_or_of_odd_width_is_exact() -> None:
    pytest.importorskip("faiss", reason="for the approximate search")
    torch.manual_seed(7)
    for m, d in ((639, 8), (2000, 7)):
        q, keys = torch.randn(1, 2, 9, d), torch.randn(1, 2, m, d)
        asked = Lookup(keys, search="approximate")
        assert torch.equal(asked.nearest(q, 12), nearest(q, keys, 12))


def test_recall() -> None:
    exact = torch.tensor([[3, 1, 4, 5], [9, 2, search.NOTHING, search.NOTHING]])
    assert recall(exact, exact) == 1
    assert recall(torch.tensor([[4, 7, 3, 8], [2, 6, search.NOTHING, 0]]), exact) == 0.5
    with pytest.raises(ValueError, match="the same queries"):
        recall(exact[:1], exact)


def test_what_makes_no_sense_is_refused() -> None:
    pytest.importorskip("faiss", reason="for the approximate search")
    keys, q = made()
    for wrong, words in (
        (lambda: Index(keys[:600], Codes()), "at least 640 keys, got 600"),
        (lambda: Index(keys[:800], Codes(lists=50, probed=2)), "at least 2,000 keys, got 800"),
        (lambda: Index(keys[:, :15], Codes()), "the width 15 is odd"),
        (lambda: Index(keys).search(q[:, :8], 3), "width 16, but the queries have width 8"),
        (lambda: Codes(lists=9), "lists=9 and probed=0"),
        (lambda: Codes(probed=9), "lists=0 and probed=9"),
        (lambda: Codes(lists=4, probed=9), "lists=4 and probed=9"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


def test_without_faiss_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'attnlab\[search\]'"):
        Index(made()[0], Codes())
