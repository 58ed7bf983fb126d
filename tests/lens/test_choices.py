"""The choices against plain loops over their definitions."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.lens import choices
from attnlab.lens.choices import Choice

N, D = 13, 5


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, N, D, generator=made, dtype=torch.float64) * 1.5
    return q, k


def allowed_by_hand(i: int, j: int, causal: bool, shared: bool) -> bool:
    if causal and j > i:
        return False
    return not (shared and i == j and not (causal and i == 0))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_allowed_pairs_and_weights(causal: bool, shared: bool) -> None:
    q, k = data()
    allowed = choices.allowed_pairs(N, causal=causal, shared=shared)
    weights = choices.full_weights(q, k, allowed)
    for i in range(N):
        may = [j for j in range(N) if allowed_by_hand(i, j, causal, shared)]
        assert allowed[i].nonzero().flatten().tolist() == may
        powers = [math.exp(float(q[i] @ k[j]) / math.sqrt(D)) for j in may]
        for j, power in zip(may, powers, strict=True):
            assert float(weights[i, j]) == pytest.approx(power / sum(powers), rel=1e-12)
    assert torch.all(weights[~allowed] == 0)


def test_one_shared_token_attends_to_itself() -> None:
    assert choices.allowed_pairs(1, shared=True).item() is True


def test_by_weight_takes_the_heaviest_and_computes_all() -> None:
    q, k = data()
    allowed = choices.allowed_pairs(N, causal=True)
    weights = choices.full_weights(q, k, allowed)
    found = choices.by_weight(weights, allowed, top=3)
    for i in range(N):
        best = sorted(range(i + 1), key=lambda j: -float(weights[i, j]))[:3]
        assert found.chosen[i].nonzero().flatten().tolist() == sorted(best)
    assert found.pairs == N * (N + 1) // 2
    assert choices.recall(weights, found.chosen, top=3) == pytest.approx(1)


def test_recall_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.0, 0.0, 0.0]])
    chosen = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])
    assert choices.recall(weights, chosen, top=2) == pytest.approx((0.5 / 0.8 + 0.3 / 0.9) / 2)


def test_hashes_and_buckets() -> None:
    q, k = data()
    R = torch.randn(3, D, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    allowed = choices.allowed_pairs(N, causal=True)
    found = choices.by_hashing(q, k, allowed, R)

    def bucket(x: Tensor, r: int) -> int:
        sides = [float(x @ R[r, :, c]) for c in range(4)]
        both = sides + [-s for s in sides]
        return both.index(max(both))

    pairs = 0
    for i in range(N):
        for j in range(N):
            same = [bucket(q[i], r) == bucket(k[j], r) and j <= i for r in range(3)]
            pairs += sum(same)
            assert bool(found.chosen[i, j]) == any(same)
    assert found.pairs == pairs
    assert found.query_groups is not None
    assert found.key_groups is not None
    assert found.query_groups.tolist() == [bucket(x, 0) for x in q]
    assert found.key_groups.tolist() == [bucket(x, 0) for x in k]


def test_a_hash_sees_the_direction_alone() -> None:
    q, _ = data()
    R = torch.randn(2, D, 3, dtype=torch.float64)
    found = choices.hashes(q, R)
    assert torch.equal(choices.hashes(3.5 * q, R), found)
    assert torch.equal(choices.hashes(-q, R), (found + 3) % 6)


def test_clusters_take_the_nearest() -> None:
    angles = torch.tensor([0.0, 0.1, 0.25, 1.6, 1.7, 1.9], dtype=torch.float64)
    x = torch.stack((angles.cos(), angles.sin()), dim=1) * torch.arange(1, 7)[:, None]
    allowed = choices.allowed_pairs(6)
    found = choices.by_clustering(x, None, allowed, torch.tensor([0, 5]), width=3)
    assert found.query_groups is not None
    assert found.query_groups.tolist() == [0, 0, 0, 1, 1, 1]
    blocks = torch.zeros(6, 6, dtype=torch.bool)
    blocks[:3, :3] = blocks[3:, 3:] = True
    assert torch.equal(found.chosen, blocks)
    assert found.pairs == 18
    narrow = choices.by_clustering(x, None, allowed, torch.tensor([0, 5]), width=2)
    assert narrow.query_groups is not None
    assert narrow.query_groups.tolist() == [0, 0, -1, 1, 1, -1]  # centres at 0.12 and 1.73


def test_queries_and_keys_have_clusters_of_their_own() -> None:
    q = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    k = torch.tensor([[0.1, 2.0], [2.0, 0.1]])
    allowed = choices.allowed_pairs(2)
    found = choices.by_clustering(q, k, allowed, torch.tensor([0, 1]), width=1)
    assert found.chosen.tolist() == [[False, True], [True, False]]
    assert found.query_groups is not None
    assert found.key_groups is not None
    assert found.query_groups.tolist() == [0, 1]
    assert found.key_groups.tolist() == [1, 0]


def test_one_cluster_is_full_attention() -> None:
    q, k = data()
    allowed = choices.allowed_pairs(N)
    found = choices.by_clustering(q, k, allowed, torch.tensor([4]), width=N)
    assert bool(found.chosen.all())


def sorted_pairs(block: int, causal: bool, **options: float) -> tuple[Choice, Tensor]:
    q, k = data()
    allowed = choices.allowed_pairs(N, causal=causal)
    matched = choices.matching(q, k, block=block, causal=causal)
    return choices.by_sorting(q, k, allowed, block=block, causal=causal), matched


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_attends_to_itself_and_its_match(causal: bool) -> None:
    found, matched = sorted_pairs(3, causal)
    for i in range(N):
        row = matched[i // 3]
        partner = int(row.argmax()) if float(row.max()) > 0 else i // 3
        for j in range(N):
            wanted = j // 3 in (i // 3, partner) and (j <= i or not causal)
            assert bool(found.chosen[i, j]) == wanted
    assert found.pairs == int(found.chosen.sum())


def test_matching_by_plain_sinkhorn_steps() -> None:
    q, k = data()
    found = choices.matching(q[:12], k[:12], block=3, temperature=0.5, steps=4)
    means = [x[:12].view(4, 3, D).mean(dim=1) for x in (q, k)]
    P = (means[0] @ means[1].mT / math.sqrt(D) / 0.5).exp()
    P.fill_diagonal_(0)
    for _ in range(4):
        P = P / P.sum(dim=1, keepdim=True)
        P = P / P.sum(dim=0, keepdim=True)
    torch.testing.assert_close(found, P, rtol=1e-12, atol=1e-14)


def test_many_steps_are_doubly_stochastic() -> None:
    q, k = data()
    P = choices.matching(q, k, block=3, steps=300)
    torch.testing.assert_close(P.sum(dim=0), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(P.sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_causal_matching_does_not_depend_on_later_blocks() -> None:
    q, k = data()
    changed = k.clone()
    changed[9:] += 5
    one, other = (choices.matching(q, x, block=3, causal=True) for x in (k, changed))
    assert torch.equal(one[:4], other[:4])
    assert torch.all(one[0] == 0)
    torch.testing.assert_close(one[1:].sum(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("causal", [False, True])
def test_one_block_has_no_match(causal: bool) -> None:
    found, matched = sorted_pairs(N, causal)
    assert matched.tolist() == [[0.0]]
    assert torch.equal(found.chosen, choices.allowed_pairs(N, causal=causal))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, a: choices.by_sorting(q, k, a, block=0), "block"),
        (lambda q, k, a: choices.by_weight(a.double(), a, top=0), "top"),
        (lambda q, k, a: choices.by_clustering(q, k, a, torch.tensor([0]), width=0), "width"),
        (lambda q, k, a: choices.matching(q, k, block=2, steps=0), "steps"),
    ],
)
def test_wrong_numbers_are_refused(call, words: str) -> None:  # type: ignore[no-untyped-def]
    q, k = data()
    with pytest.raises(ValueError, match=words):
        call(q, k, choices.allowed_pairs(N))
