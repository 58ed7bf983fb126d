"""Statistics of heads on a grid of patches, on heads made by hand and by loops."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.lens.patches import patch_statistics

ROWS, COLUMNS = 3, 5
PLACES = [divmod(i, COLUMNS) for i in range(ROWS * COLUMNS)]


def evenly(pairs: list[list[bool]]) -> Tensor:
    """Weights (p, p): all pairs of a query alike."""
    allowed = torch.tensor(pairs, dtype=torch.float64)
    return allowed / allowed.sum(-1, keepdim=True)


def on_grid(predicate) -> Tensor:
    return evenly([[predicate(*a, *b) for b in PLACES] for a in PLACES])


HEADS = {
    "same": on_grid(lambda r, c, y, x: (r, c) == (y, x)),
    "row": on_grid(lambda r, c, y, x: r == y and c != x),
    "column": on_grid(lambda r, c, y, x: r != y and c == x),
    "neighbours": on_grid(lambda r, c, y, x: max(abs(r - y), abs(c - x)) == 1),
    "uniform": on_grid(lambda *_: True),
}
ALL = torch.stack(list(HEADS.values()))[None]


def test_each_head_has_its_own_share_and_uniform_attention_is_chance():
    found = patch_statistics(ALL, (ROWS, COLUMNS))
    for at, name in enumerate(("same", "row", "column", "neighbours")):
        shares = getattr(found.shares, name)
        assert shares[at] == pytest.approx(1), name
        assert shares[-1] == pytest.approx(getattr(found.uniform, name)[at]), name
    chance = {
        "same": 1 / 15,
        "row": 4 / 15,
        "column": 2 / 15,
        "neighbours": (3 * 8 + 8 * 5 + 4 * 3) / 15 / 15,  # inside, edges, corners
        "special": 0,
    }
    for name, share in chance.items():
        np.testing.assert_allclose(getattr(found.uniform, name), share, atol=1e-15, err_msg=name)
    assert found.shares.row[0] == found.shares.column[0] == 0  # a patch is not its own row
    assert found.shares.ink is found.uniform.stroke is found.average.alike is None


def test_distance_is_in_sides_of_a_patch():
    found = patch_statistics(ALL, (ROWS, COLUMNS)).shares.distance
    flat = np.mean([math.dist(a, b) for a in PLACES for b in PLACES])
    touching = (3 * (1 + math.sqrt(2)) / 2 + 8 * (3 + 2 * math.sqrt(2)) / 5) / 15
    touching += 4 * (2 + math.sqrt(2)) / 3 / 15
    assert found[0] == 0
    assert found[3] == pytest.approx(touching)
    assert found[4] == pytest.approx(flat)


def random_weights(b: int, h: int, n: int) -> Tensor:
    drawn = torch.randn(b, h, n, n, generator=torch.Generator().manual_seed(0)).double()
    return (2 * drawn).softmax(-1)


def test_shares_of_ink_by_loops():
    w = random_weights(4, 2, 15)
    ink = torch.rand(4, 15, generator=torch.Generator().manual_seed(1)) > 0.6
    found = patch_statistics(w, (ROWS, COLUMNS), ink)
    for kind, of in {"shares": w, "average": w.mean(0).expand_as(w)}.items():
        ours = getattr(found, kind)
        for head in range(2):
            to_ink, stroke, alike = [], [], []
            for b in range(4):
                for i in range(15):
                    row = of[b, head, i].tolist()
                    others = [j for j in range(15) if j != i]
                    to_ink.append(sum(row[j] for j in range(15) if ink[b, j]))
                    alike.append(sum(row[j] for j in others if ink[b, j] == ink[b, i]))
                    if ink[b, i]:
                        stroke.append(sum(row[j] for j in others if ink[b, j]))
            assert ours.ink[head] == pytest.approx(np.mean(to_ink))
            assert ours.stroke[head] == pytest.approx(np.mean(stroke))
            assert ours.alike[head] == pytest.approx(np.mean(alike))
    np.testing.assert_allclose(found.uniform.ink, float(ink.double().mean()))


def test_a_head_that_follows_ink_is_above_its_own_average_and_one_of_positions_is_not():
    ink = torch.rand(40, 15, generator=torch.Generator().manual_seed(2)) > 0.5
    ink[:, 7] = True  # in the middle there is always ink
    keys = ink.double() / ink.sum(-1, keepdim=True)
    follows = keys[:, None].expand(-1, 15, -1)
    middle = torch.zeros(40, 15, 15, dtype=torch.float64)
    middle[..., 7] = 1
    found = patch_statistics(torch.stack([follows, middle], 1), (ROWS, COLUMNS), ink)
    np.testing.assert_allclose(found.shares.ink, 1)
    assert found.average.ink[0] < 0.7
    assert found.average.ink[1] == pytest.approx(1)  # far above uniform, and no ink is needed
    assert found.uniform.ink[1] < 0.6
    assert found.position[0] < 0.2
    assert found.position[1] == pytest.approx(1)


def test_variance_is_split_into_offset_positions_and_the_rest():
    """The sum over images and pairs, by loops over groups."""
    w = random_weights(3, 2, 15)
    found = patch_statistics(w, (ROWS, COLUMNS))
    for head in range(2):
        cells = w[:, head].numpy()
        total = ((cells - cells.mean()) ** 2).sum()
        by_pair = cells.mean(0, keepdims=True).repeat(3, 0)
        groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, (r, c) in enumerate(PLACES):
            for j, (y, x) in enumerate(PLACES):
                groups.setdefault((y - r, x - c), []).append((i, j))
        by_offset = np.empty_like(cells)
        for (down, right), pairs in groups.items():
            i, j = np.array(pairs).T
            by_offset[:, i, j] = mean = cells[:, i, j].mean()
            at = found.by_offset[head, down + ROWS - 1, right + COLUMNS - 1]
            assert at == pytest.approx(mean)
        by_key = cells.mean(1, keepdims=True).repeat(15, 1)
        groups_of = {"offset": by_offset, "position": by_pair, "key": by_key}
        for name, means in groups_of.items():
            explained = ((means - cells.mean()) ** 2).sum() / total
            assert getattr(found, name)[head] == pytest.approx(explained), name
    assert found.by_offset.shape == (2, 2 * ROWS - 1, 2 * COLUMNS - 1)


def test_what_explains_a_head_of_each_kind():
    right = on_grid(lambda r, c, y, x: y == r and x == min(c + 1, COLUMNS - 1))
    corner = on_grid(lambda r, c, y, x: (y, x) == (0, 0))
    several = torch.stack([right, corner, HEADS["uniform"]]).expand(4, -1, -1, -1)
    found = patch_statistics(several, (ROWS, COLUMNS))
    assert 0.7 < found.offset[0] < 1  # the last column attends to itself
    assert found.offset[1] < 0.3
    np.testing.assert_allclose(found.position[:2], 1)
    assert found.key[0] < 0.2 < found.key[1] == pytest.approx(1)
    assert np.isnan([found.offset[2], found.position[2], found.key[2]]).all()
    alone = patch_statistics(several[:1], (ROWS, COLUMNS))
    assert np.isnan(alone.position).all()  # one image explains itself
    np.testing.assert_allclose(alone.offset, found.offset)


def test_tokens_before_the_patches_are_keys_only():
    n = 2 + 15
    w = random_weights(3, 2, n)
    found = patch_statistics(w, (ROWS, COLUMNS))
    np.testing.assert_allclose(found.shares.special, w[:, :, 2:, :2].sum(-1).mean((0, 2)))
    np.testing.assert_allclose(found.uniform.special, 2 / n)
    np.testing.assert_allclose(found.uniform.row, 4 / n)
    among = w[:, :, 2:, 2:]
    alone = patch_statistics(among / among.sum(-1, keepdim=True), (ROWS, COLUMNS))
    np.testing.assert_allclose(found.shares.distance, alone.shares.distance)


def test_padding_has_no_influence():
    """The second image has its last two columns left out, and anything may stand there."""
    real = torch.ones(2, 15, dtype=torch.bool)
    real[1] = torch.tensor([column < 3 for _, column in PLACES])
    ink = torch.rand(2, 15, generator=torch.Generator().manual_seed(3)) > 0.5
    w = random_weights(2, 2, 15) * real[:, None, None]
    w = w / w.sum(-1, keepdim=True)
    spoiled = w.clone()
    spoiled[1, :, ~real[1]] = 7.0
    one, other = (
        patch_statistics(x, (ROWS, COLUMNS), i, padding=real)
        for x, i in ((w, ink), (spoiled, ink ^ ~real))
    )
    for kind in ("shares", "average", "uniform"):
        for name, share in vars(getattr(one, kind)).items():
            np.testing.assert_allclose(getattr(getattr(other, kind), name), share, err_msg=name)
    for name in ("offset", "position", "key", "by_offset"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), err_msg=name)
    # by hand: 15 queries among 15, and 9 among 9
    assert one.uniform.row[0] == pytest.approx((15 * 4 / 15 + 9 * 2 / 9) / 24)
    small = patch_statistics(w[1:][:, :, real[1]][..., real[1]], (3, 3))
    left_out = patch_statistics(w[1:], (ROWS, COLUMNS), padding=real[1:])
    np.testing.assert_allclose(left_out.shares.row, small.shares.row)
    np.testing.assert_allclose(left_out.offset, small.offset)
    np.testing.assert_allclose(left_out.key, small.key)


def test_rows_are_a_table():
    ink = torch.ones(1, 15, dtype=torch.bool)
    rows = patch_statistics(ALL, (ROWS, COLUMNS), ink).rows()
    assert [row["head"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[1]["row"] == pytest.approx(1)
    assert rows[1]["row (uniform)"] == pytest.approx(4 / 15)
    assert rows[4]["ink (average)"] == pytest.approx(1)
    assert {"offset", "position", "key"} < set(rows[0])
    assert "ink" not in patch_statistics(ALL, (ROWS, COLUMNS)).rows()[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"grid": (3, 6)}, "3 × 6 = 18 patches, and there are only 15 tokens"),
        ({"grid": (0, 5)}, "rows of `grid` should be at least 1"),
        ({"grid": (3, 5, 1)}, "grid should hold 2 values"),
        ({"ink": torch.ones(1, 14, dtype=torch.bool)}, "3 × 5 = 15 patches whether it has ink"),
        ({"weights": ALL.float() - 1}, "`weights` are negative"),
        ({"weights": ALL * torch.nan}, "`weights` hold NaN"),
        ({"weights": ALL[..., :14]}, "weights"),
    ],
)
def test_what_is_refused(wrong, words):
    given = {"weights": ALL, "grid": (ROWS, COLUMNS), **wrong}
    with pytest.raises((TypeError, ValueError), match=words):
        patch_statistics(**given)
