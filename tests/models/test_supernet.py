"""A supernet: corners of shared matrices, and the search among them."""

from random import Random
from typing import Any

import pytest
import torch

from attnlab.models.counts import count
from attnlab.models.supernet import Evolution, Sizes, Space, Supernet, evolved, mixed, network
from attnlab.tasks.digits import Digits
from attnlab.train import fit

SPACE = Space(dim=(8, 12), hidden=(5, 7, 11), heads=(2, 4), layers=(1, 2, 3))
DEMO = Space(dim=(16, 32), hidden=(16, 32, 64), heads=(2, 4), layers=(1, 2, 3))
OPTIONS: dict[str, Any] = {"kind": "classifier", "features": 4, "classes": 10, "max_len": 16}
SMALL = Sizes(8, (7, 5), (4, 2))


def supernet(**changes: Any) -> Supernet:
    torch.manual_seed(1)
    return Supernet(SPACE, **{**OPTIONS, **changes}).double().eval()


def inputs() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(3, 16, 4, dtype=torch.float64)


def test_the_demo_has_516_sizes_each_once() -> None:
    assert len(DEMO) == len({*DEMO}) == 516
    assert all(sizes in DEMO for sizes in DEMO)
    assert DEMO.largest in DEMO
    assert Sizes(16, (16, 32), (2,)) not in DEMO
    assert Sizes(16, (16, 33), (2, 2)) not in DEMO


def test_the_largest_sub_network_is_the_supernet() -> None:
    ours, x = supernet(), inputs()
    assert torch.equal(ours(x), ours.largest(x))
    assert torch.equal(ours(x), ours(x, sizes=SPACE.largest))
    assert {*ours.corners(SPACE.largest)} == {*dict(ours.largest.named_parameters())}
    assert sum(p.numel() for p in ours.parameters()) == count(ours.largest, 16)[-1].parameters


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("classifier", {}), ("encoder_decoder", {"vocab": 13, "features": None, "classes": None})],
)
def test_what_a_sub_network_does_not_use_has_no_influence_and_no_gradient(
    kind: str, changes: dict[str, Any]
) -> None:
    ours = supernet(kind=kind, **changes)
    tokens = torch.arange(26).view(2, 13) % 13 if kind == "encoder_decoder" else inputs()
    given = {"source": tokens} if kind == "encoder_decoder" else {}
    out = ours(tokens, sizes=SMALL, **given)
    out.square().sum().backward()
    corners = {name: corner.shape for name, corner in ours.corners(SMALL).items()}
    unused = 0
    with torch.no_grad():
        for name, whole in ours.largest.named_parameters():
            rest = torch.ones_like(whole, dtype=torch.bool)
            if name in corners:
                rest[tuple(slice(size) for size in corners[name])] = False
            unused += int(rest.sum())
            if whole.grad is not None:
                assert (whole.grad[rest] == 0).all()
            whole[rest] += 1.0
    assert unused > 0
    assert torch.equal(ours(tokens, sizes=SMALL, **given), out)


def test_a_corner_is_the_first_rows_and_columns() -> None:
    ours = supernet()
    whole, corners = ours.largest, ours.corners(SMALL)
    first: Any = whole.encoder.blocks[0]  # type: ignore[union-attr]
    expected = {
        "attention.heads.query.weight": first.attention.heads.query.weight[:, :8],
        "attention.heads.output.weight": first.attention.heads.output.weight[:8],
        "feed_forward.expand.weight": first.feed_forward.expand.weight[:7, :8],
        "feed_forward.contract.weight": first.feed_forward.contract.weight[:8, :7],
        "feed_forward.expand.bias": first.feed_forward.expand.bias[:7],
    }
    for name, tensor in expected.items():
        assert torch.equal(corners[f"encoder.blocks.0.{name}"], tensor)
    assert not any(name.startswith("encoder.blocks.2") for name in corners)


def test_fewer_heads_are_wider_heads_over_the_same_columns() -> None:
    ours, x = supernet(), inputs()
    two, four = Sizes(12, (11,), (2,)), Sizes(12, (11,), (4,))
    shapes = [{n: c.shape for n, c in ours.corners(each).items()} for each in (two, four)]
    assert shapes[0] == shapes[1]
    assert not torch.allclose(ours(x, sizes=two), ours(x, sizes=four))
    layer: Any = ours.inherited(two).encoder.blocks[0].attention  # type: ignore[union-attr]
    assert (layer.heads.heads, layer.heads.head_dim) == (2, 6)


def test_an_inherited_network_computes_the_same_and_is_its_own() -> None:
    ours, x = supernet(), inputs()
    own = ours.inherited(SMALL)
    torch.testing.assert_close(own(x), ours(x, sizes=SMALL))
    assert count(own, 16)[-1].parameters == sum(c.numel() for c in ours.corners(SMALL).values())
    before = ours(x, sizes=SMALL)
    with torch.no_grad():
        for p in own.parameters():
            p.zero_()
    assert torch.equal(ours(x, sizes=SMALL), before)


def test_each_step_trains_another_sub_network_the_same_with_the_same_seed() -> None:
    found = []
    for seed in (0, 0, 1):
        ours, drawn = Supernet(SPACE, **OPTIONS), []
        corners = ours.corners
        ours.corners = lambda sizes, c=corners, d=drawn: (d.append(sizes), c(sizes))[1]  # type: ignore
        fit(ours, Digits(unit="patches"), 20, batch_size=4, progress=False, seed=seed)
        found.append(drawn)
    assert len({*found[0]}) > 10
    assert {sizes.layers for sizes in found[0]} == {1, 2, 3}
    assert found[0] == found[1] != found[2]


def test_initial_weights_are_scaled_for_the_layers_of_each() -> None:
    torch.manual_seed(0)
    one = network(DEMO, Sizes(32, (64,), (4,)), **OPTIONS)
    torch.manual_seed(0)
    three = network(DEMO, Sizes(32, (64,) * 3, (4,) * 3), **OPTIONS)
    deviation = [
        made.get_parameter("encoder.blocks.0.feed_forward.contract.weight").std()
        for made in (one, three)
    ]
    assert (deviation[0] / deviation[1]).item() == pytest.approx(3**0.5, rel=0.1)


# ---- search


def flops(sizes: Sizes) -> int:
    return sizes.dim * sum(8 * SPACE.inner + 4 * hidden for hidden in sizes.hidden)


def test_evolution_finds_the_best_sizes_within_the_limit() -> None:
    wanted = Sizes(8, (11, 5, 7), (2, 4, 2))

    def score(sizes: Sizes) -> float:
        pairs = zip((*sizes.hidden, *sizes.heads), (*wanted.hidden, *wanted.heads))  # noqa: B905
        return -abs(sizes.layers - 3) + sum(a == b for a, b in pairs)

    asked: list[Sizes] = []
    how = Evolution(parents=8, mutated=12, crossed=12, rounds=12)
    limit = flops(wanted)
    best = evolved(
        SPACE, lambda sizes: (asked.append(sizes), score(sizes))[1],
        cost=flops, limit=limit, evolution=how,
    )  # fmt: skip
    exact = max(score(sizes) for sizes in SPACE if flops(sizes) <= limit)
    assert score(best) == exact
    assert len(asked) == len({*asked}) < len(SPACE)
    assert all(flops(sizes) <= limit for sizes in asked)


def test_children_have_sizes_of_their_parents() -> None:
    one, other = Sizes(8, (5, 7, 11), (2, 2, 4)), Sizes(12, (11,), (4,))
    random = Random(0)
    children = {mixed(one, other, 0.5, random) for _ in range(200)}
    assert children <= {*SPACE}
    assert all(child.hidden[1:] in ((), (7, 11)) for child in children)
    assert {child.hidden[0] for child in children} == {5, 11}
    assert mixed(one, other, 0.0, random) == one
    assert mixed(one, other, 1.0, random) == other


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Space(dim=(8,), hidden=(4,), heads=(3,), layers=(1,)), "heads should divide"),
        (lambda: Space(dim=(), hidden=(4,), heads=(2,), layers=(1,)), "dim should be the sizes"),
        (lambda: Space(dim=(8,), hidden=4, heads=(2,), layers=(1,)), "hidden should be the"),  # type: ignore[arg-type]
        (lambda: Space(dim=(8,), hidden=(4,), heads=(2,), layers=(0,)), "at least 1"),
        (lambda: Supernet(SPACE, dim=8, **OPTIONS), "the space of a supernet decides dim"),
        (lambda: supernet()(inputs(), sizes=Sizes(9, (5,), (2,))), "should be of the space"),
        (lambda: Evolution(probability=2), "probability should be from 0 to 1"),
        (lambda: Evolution(parents=0), "parents should be at least 1"),
        (
            lambda: evolved(SPACE, lambda _: 0.0, cost=flops, limit=1),
            r"no network among 1000 has a cost within limit=1; the largest costs 5,040",
        ),
    ],
)
def test_bad_calls_are_answered_in_sentences(call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()
