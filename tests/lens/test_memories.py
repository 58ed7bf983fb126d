"""What layers with a memory attend to and carry, segment by segment."""

from typing import Any

import numpy as np
import pytest
import torch

import attnlab
from attnlab.catalog import card
from attnlab.lens.memories import AHEAD, FAR, LOST, NEAR, SEGMENT, Attended, Carried, recorded
from attnlab.lens.mixing import mixing_matrix

DIM, HEADS, N = 10, 2, 17
XL = {"segment": 3, "memory": 4}
COMPRESSIVE = {"segment": 4, "memory": 4, "compressed": 3, "rate": 2}


def layer(name: str, **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    heads = {} if name in ("rwkv", "gru", "lstm", "brc", "nbrc") else {"heads": HEADS}
    given = {"dim": DIM, "causal": True, **heads, **options}
    return attnlab.build(name, **given).double()


def vectors(n: int = N) -> torch.Tensor:
    made = torch.Generator().manual_seed(1)
    return torch.randn(1, n, DIM, generator=made, dtype=torch.float64)


def film(name: str, n: int = N, **options: Any) -> Any:
    """What is recorded of a layer that reads n vectors."""
    with torch.no_grad():
        return recorded(layer(name, **options), vectors(n))


def zones(one: Attended) -> list[str]:
    signs = {AHEAD: ".", SEGMENT: "s", NEAR: "m", FAR: "c", LOST: "x"}
    return ["".join(signs[zone] for zone in row.tolist()) for row in one.zones]


# What a layer attends to


def test_zones_of_transformer_xl() -> None:
    one = film("transformer_xl", 11, **XL)
    assert zones(one) == ["sss........", "mmmsss.....", "xxmmmmsss..", "xxxxxmmmmss"]


def test_zones_of_the_compressive_transformer() -> None:
    one = film("compressive_transformer", 18, **COMPRESSIVE)
    assert zones(one) == [
        "ssss..............",
        "mmmmssss..........",
        "ccccmmmmssss......",
        "xxccccccmmmmssss..",
        "xxxxxxccccccmmmmss",
    ]
    odd = film("compressive_transformer", 12, **(COMPRESSIVE | {"rate": 3}))
    assert zones(odd)[2] == "cccxmmmmssss", "what is left over of a segment is lost"


def test_zones_of_the_memorizing_transformer() -> None:
    given = {"segment": 3, "cache": 2, "memory": 4, "neighbours": 2}
    one = film("memorizing_transformer", 12, **given)
    assert zones(one) == ["sss.........", "cmmsss......", "xxccmmsss...", "xxxxxccmmsss"]
    leaving = film("memorizing_transformer", 12, stored="leaving", gated=False, **given)
    assert zones(leaving)[3] == "xxxccccmmsss"


def test_weights_are_those_by_which_values_are_mixed() -> None:
    """`mixing_matrix` finds them from the outputs alone, in another form of the layer."""
    for options in (XL, XL | {"same_length": True}, {"segment": 5, "memory": 0}):
        found = film("transformer_xl", **options).weights
        wanted = mixing_matrix(layer("transformer_xl", **options), vectors())
        assert wanted.exact
        torch.testing.assert_close(found, wanted.matrix[0], rtol=0, atol=1e-8)


def test_the_memories_are_those_of_the_state_while_reading_on() -> None:
    for name, options in (("transformer_xl", XL), ("compressive_transformer", COMPRESSIVE)):
        one, module, state = film(name, **options), layer(name, **options), None
        for i, token in enumerate(vectors().split(1, dim=1)):
            before = one.zones[i // options["segment"], :i]
            kept = 0 if state is None else state.memory.shape[1]
            short = (
                0
                if state is None or not hasattr(state, "compressed")
                else (options["rate"] * state.compressed.shape[1])
            )
            assert [int((before == zone).sum()) for zone in (NEAR, FAR)] == [kept, short], i
            _, state = module.step(token, state)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transformer_xl", XL),
        *(
            ("compressive_transformer", COMPRESSIVE | {"compression": kind})
            for kind in ("mean", "max", "convolution", "most_used")
        ),
        ("memorizing_transformer", {"segment": 3, "cache": 2, "memory": 4, "neighbours": 2}),
    ],
)  # fmt: skip
def test_what_is_lost_has_no_weight_and_the_rest_has_all(name: str, options: Any) -> None:
    found = film(name, **options)
    of_query = found.zones[torch.arange(N) // options["segment"]]
    gone = (of_query == LOST) | (of_query == AHEAD)
    assert bool(gone.any())
    assert float(found.weights.masked_fill(~gone, 0).abs().max()) == 0
    sums = found.shares().sum(-1)
    torch.testing.assert_close(sums, found.weights.sum(-1))
    if name != "memorizing_transformer":
        torch.testing.assert_close(sums, torch.ones(HEADS, N).double())
    assert found.covers == (
        2 if options.get("compression") in ("mean", "max", "convolution") else 1
    )


def test_the_most_used_inputs_are_those_that_are_still_seen() -> None:
    one = film("compressive_transformer", **(COMPRESSIVE | {"compression": "most_used"}))
    rows = zones(one)
    assert [row[:4].count("c") for row in rows[2:4]] == [2, 1], "two of four inputs, of three kept"
    places = [at for at, sign in enumerate(rows[2]) if sign == "c"]
    assert float(one.weights[:, 8:12, places].min()) > 0


# States


def test_states_of_cells_are_their_outputs() -> None:
    for name in ("gru", "brc", "nbrc"):
        found = film(name)
        out = layer(name)(vectors())
        torch.testing.assert_close(found.states, out.detach())
        assert found.half_life is None


@pytest.mark.parametrize("name", ["lstm", "rwkv", "block_recurrent"])
def test_states_are_those_after_reading_all_at_once(name: str) -> None:
    options = {"block": 4, "states": 3} if name == "block_recurrent" else {}
    found, module = film(name, **options), layer(name, **options)
    for n in (1, 8, N):
        _, state = module.step(vectors()[:, :n])
        if name == "rwkv":
            wanted = state.values / state.weights
        else:
            wanted = state.memory if name == "lstm" else state.states[0]
        torch.testing.assert_close(found.states[:, n - 1], wanted.detach().view(-1, DIM))


def test_half_of_what_rwkv_read_is_left_after_its_half_life() -> None:
    module = layer("rwkv")
    with torch.no_grad():
        module.decay.copy_(torch.tensor(2.0).log().log().expand(DIM))  # w = ln 2: one token
        module.decay[3] = torch.tensor(np.log(2) / 5).log()
    half_life = recorded(module, vectors()).half_life
    assert half_life.tolist() == pytest.approx([1, 1, 1, 5, *[1] * 6])


@pytest.mark.parametrize("update", ["skip", "dual"])
def test_half_of_a_state_is_left_after_the_half_life_of_its_gates(update: str) -> None:
    module = layer("block_recurrent", block=2, states=3, update=update)
    keep = 2 ** (-1 / 3) if update == "skip" else 2 ** (-1 / 6)  # of each of two gates
    with torch.no_grad():
        for name, weight in module.update.named_parameters():
            weight.fill_(np.log(keep / (1 - keep)) if name.endswith("bias") else 0)
    found = recorded(module, vectors())
    assert found.half_life.tolist() == pytest.approx([6.0] * DIM), "three blocks of two"
    torch.testing.assert_close(found.states[:, 5], found.states[:, 0] / 2)
    lstm = film("block_recurrent", block=2, states=3, gate="lstm")
    assert lstm.half_life is None


def test_change_is_counted_between_states_that_differ() -> None:
    states = torch.tensor([[[0.0, 5.0], [0.0, 5.0], [2.0, 5.0], [2.0, 5.0], [4.0, 5.0]]])
    found = Carried(card("gru"), "", states, every=2).change()
    assert found.tolist() == [[pytest.approx(2 / np.std([0, 2, 4])), 0]]
