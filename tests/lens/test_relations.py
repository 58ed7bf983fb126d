"""Relations that single heads find, on planted heads and by hand."""

import pytest
import torch

import attnlab
from attnlab.lens.relations import Finder, relation
from attnlab.models.tiny import TinyTransformer

N, ROWS = 12, 40


def planted(seed):
    """Pairs at all distances, and two heads in two layers: one that looks from each partner to its
    token, and one to the place before; the others are random."""
    made = torch.Generator().manual_seed(seed)
    pairs = [
        [tuple(torch.randperm(N, generator=made)[:2].tolist()) for _ in range(2)]
        for _ in range(ROWS)
    ]
    layers = torch.rand(2, ROWS, 3, N, N, generator=made).softmax(-1)
    layers[1, :, 0] = 0.5 * layers[1, :, 0] + 0.5 * torch.eye(N).roll(-1, 1)
    for row, of_one in enumerate(pairs):
        for token, partner in dict(reversed([p[::-1] for p in of_one])).items():
            layers[0, row, 2, token] = 0.3 / (N - 1)
            layers[0, row, 2, token, partner] = 0.7
    pairs = [list({p[1]: p for p in reversed(of_one)}.values()) for of_one in pairs]
    return {"first": layers[0], "second": layers[1]}, pairs


def test_a_planted_head_is_found_in_its_direction():
    found = relation(*planted(0))
    assert found.best == Finder(0, 2, "transposed")
    assert found.right(*found.best) == 1
    assert found.rows()[0] == {"layer": 0, "head": 2, "direction": "transposed", "right": 1.0}
    others = [row["right"] for row in found.rows()[1:]]
    chance = 1 / (N - 1)
    assert max(others) < chance + 5 * (chance / found.pairs) ** 0.5, "the others guess"
    assert found.right_offset(found.best_offset) < 0.3
    assert sum(found.offsets.values()) == found.pairs


def test_a_head_of_a_fixed_distance_is_no_better_than_the_offset():
    weights = torch.eye(N).roll(-1, 1).expand(3, 2, N, N)  # row i attends to i - 1
    weights = weights.roll(2, -1).contiguous()  # …, here to i + 1
    found = relation({"a": weights}, [[(4, 5), (7, 8)], [(0, 1), (2, 5)], []])
    assert found.best_offset == 1
    assert found.right(0, 0) == found.right_offset(1) == 0.75
    assert found.right(0, 0, "transposed") == 0
    assert found.right_offset(3) == 0.25
    assert found.right_offset(2) == 0


def test_the_own_place_padding_and_empty_rows_are_no_partners():
    weights = torch.zeros(1, 1, 4, 4)
    weights[0, 0, 0] = torch.tensor([0.6, 0.1, 0.0, 0.3])  # itself, then padding, then 1
    padding = torch.tensor([[True, True, True, False]])
    assert relation({"a": weights}, [[(0, 3)]]).right(0, 0) == 1
    assert relation({"a": weights}, [[(0, 1)]], padding=padding).right(0, 0) == 1
    assert relation({"a": weights}, [[(2, 0)]]).right(0, 0) == 0, "a row of zeros finds nothing"


def test_batches_are_added():
    (seen, pairs), (other, more) = planted(0), planted(1)
    both = relation(seen, pairs) + relation(other, more)
    stacked = {name: torch.cat([seen[name], other[name]]) for name in seen}
    assert both == relation(stacked, pairs + more)
    with pytest.raises(ValueError, match="models with other layers or heads"):
        _ = both + relation({"a": seen["first"]}, pairs)


def test_untrained_heads_are_at_chance():
    torch.manual_seed(0)
    model = TinyTransformer(vocab=50, dim=32, heads=8, layers=2, positions="none")
    made = torch.Generator().manual_seed(1)
    with attnlab.watch(model) as seen:
        model(torch.randint(50, (200, N), generator=made))
    pairs = [[tuple(torch.randperm(N, generator=made)[:2].tolist())] for _ in range(200)]
    rights = [row["right"] for row in relation(seen, pairs).rows()]
    assert max(rights) < 0.2
    assert abs(sum(rights) / len(rights) - 1 / (N - 1)) < 0.03


@pytest.mark.parametrize(
    ("pairs", "error", "said"),
    [
        ([[]], ValueError, "there is no pair in any sequence"),
        ([[(0, 3)]], ValueError, r"two different places from 0 to 2, got \(0, 3\) in sequence 0"),
        ([[(1, 1)]], ValueError, r"two different places from 0 to 2, got \(1, 1\)"),
        ([[(0, 1)], [(0, 1)]], ValueError, "'a' has 1 sequences of 3 queries and 3 keys"),
        ("ab", TypeError, "pairs should be a list for each sequence"),
    ],
)
def test_bad_pairs(pairs, error, said):
    with pytest.raises(error, match=said):
        relation({"a": torch.rand(1, 2, 3, 3)}, pairs)


def test_bad_questions():
    found = relation({"a": torch.rand(1, 2, 3, 3)}, [[(0, 1)]])
    with pytest.raises(ValueError, match="there is no head 2 in layer 0"):
        found.right(0, 2)
    with pytest.raises(ValueError, match="direction"):
        found.right(0, 1, "backward")
    with pytest.raises(ValueError, match="of a sequence to itself"):
        relation({"a": torch.rand(1, 2, 3, 4)}, [[(0, 1)]])
