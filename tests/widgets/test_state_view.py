"""StateView: its states are those of the catalogue, and its sentences say what they hold."""

import math
import re
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.state_view import PRESETS, RULES, StateView
from attnlab_widgets.state_view.words import best, number
from torch import Tensor

from attnlab.mechanisms.kernelized import linear
from attnlab.mechanisms.recurrence import (
    deltanet,
    gated_deltanet,
    gated_linear,
    kimi_delta,
    mamba2,
    retention,
    rwkv7,
)
from tests.widgets.stored import assert_fresh, write

THREE = [("x", "one", 2.0), ("y", "two", 0.5), ("x", "two", 1.0), ("z", "one", 3.0), ("y", "one")]


def widgets() -> list[StateView]:
    return [
        *(StateView(family=family, preset=name) for family in RULES for name in PRESETS),
        *(StateView(THREE, family=family, decay=0.7, step=0.6, overlap=0.3) for family in RULES),
        StateView([("a", "b")], family="kimi_delta", decay=0.0),
        StateView(THREE, family="gated_deltanet", decay=0.0, step=2.5, overlap=0.9, token=1),
    ]


def case(one: StateView) -> dict[str, Any]:
    names = ("family", "facts", "decay", "step", "overlap", "token")
    return {
        **{name: getattr(one, name) for name in names},
        "rules": one._rules, "names": one.names, "values": one.values,
        "transitions": one.transitions().tolist(), "spectra": one.eigenvalues().tolist(),
        "states": one.states().tolist(), "readings": one.readings().tolist(),
        "newest": one.newest(), "right": list(one.right().values()), "said": one.description(),
    }  # fmt: skip


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("state.json", cases())


# ---- the rules are the catalogue's


def logit(x: Tensor) -> Tensor:
    return torch.logit(x.clamp(1e-12, 1 - 1e-12))


def softplus_of(x: Tensor) -> Tensor:
    """What softplus takes to x."""
    return x + (-torch.expm1(-x)).log()


def by_the_page(one: StateView) -> Tensor:
    """What the page of the family reads with every key after the last fact, (m, e)."""
    k, v = one.keys_and_values()
    keys, d = one._keys(), k.shape[1]
    log_a = one.decays().log()
    zeros = k.new_zeros(len(keys), d)
    q, k = torch.cat((k, keys)), torch.cat((k, zeros))  # the last m tokens only read
    v = torch.cat((v, v.new_zeros(len(keys), v.shape[1])))
    log_a = torch.cat((log_a, zeros))
    b = torch.cat((v.new_full((len(log_a) - len(keys),), one.step), v.new_zeros(len(keys))))
    q, k, v = (x[None, None] for x in (q * math.sqrt(d), k, v))
    number, channel = log_a[None, None, :, 0].clamp_max(-1e-9), log_a[None, None].clamp_max(-1e-9)
    one_head = q.new_zeros(1)
    out = {
        "mamba2": lambda: mamba2.naive(
            q / math.sqrt(d), k, v / -number[..., None], softplus_of(-number), one_head, one_head
        ),
        "gated_linear": lambda: gated_linear.naive(
            q, k, v, logit(channel.exp()),
            options=gated_linear.GatedLinearOptions(temperature=1.0),
        ),
        "deltanet": lambda: deltanet.naive(q, k, v, logit(b)[None, None]),
        "gated_deltanet": lambda: gated_deltanet.naive(
            q, k, v, logit(b)[None, None], softplus_of(-number), one_head
        ),
        "kimi_delta": lambda: kimi_delta.naive(
            q, k, v, logit(b)[None, None], softplus_of(-channel), one_head
        ),
    }[one.family]()  # fmt: skip
    read: Tensor = out[0, 0, -len(keys) :]
    unit = one.rule.erases != "none"  # whose queries are of unit length, divided by √d
    return read * math.sqrt(d) if unit else read


@pytest.mark.parametrize(
    "family", ["mamba2", "gated_linear", "deltanet", "gated_deltanet", "kimi_delta"]
)
@pytest.mark.parametrize("overlap", [0.0, 0.3])
def test_the_state_is_that_of_the_page(family: str, overlap: float) -> None:
    one = StateView(THREE, family=family, decay=0.7, step=0.6, overlap=overlap)
    torch.testing.assert_close(one.readings(), by_the_page(one), rtol=0, atol=1e-5)


def test_linear_attention_and_retention_are_sums() -> None:
    for family, decay in (("linear", 1.0), ("retention", 0.7)):
        one = StateView(THREE, family=family, decay=0.7, overlap=0.3)
        k, v = one.keys_and_values()
        S = sum(decay ** (len(k) - 1 - t) * torch.outer(k[t], v[t]) for t in range(len(k)))
        torch.testing.assert_close(one.states()[-1], S)
    assert linear.CARD.name in RULES
    assert retention.CARD.name in RULES


def test_rwkv_7_reads_before_the_decay() -> None:
    """S_t = diag(w) S - b k (k S) + b k vᵀ, where Kimi Delta Attention reads diag(w) S."""
    one = StateView(THREE, family="rwkv7", decay=0.7, step=0.6, overlap=0.3)
    S = torch.zeros(3, 2, dtype=torch.float64)
    for k, v, w in zip(*one.keys_and_values(), one.decays(), strict=True):
        S = w[:, None] * S + 0.6 * torch.outer(k, v - k @ S)
    torch.testing.assert_close(one.states()[-1], S)
    given = StateView(THREE, family="rwkv7", decay=0.95, step=0.6, overlap=0.3)
    k, v = given.keys_and_values()
    heads = [x[None, None] for x in (given._keys(), k, v)]
    q = torch.cat((k[:-1], heads[0][0, 0, :1]))[None, None]  # the last one is the first key
    rate = torch.full_like(k, 0.6).logit()[None, None]
    fades = logit(-(math.e**0.5) * given.decays().log())[None, None]
    one_row = torch.ones(1, 3, dtype=torch.float64)
    found = rwkv7.naive(q, *heads[1:], rate, fades, one_row, one_row)
    torch.testing.assert_close(found[0, 0, -1], given.readings()[0], rtol=0, atol=1e-5)
    other = StateView(THREE, family="kimi_delta", decay=0.7, step=0.6, overlap=0.3)
    assert not torch.allclose(one.states()[-1], other.states()[-1])


def test_eigenvalues_are_those_of_the_transition() -> None:
    for one in widgets():
        for A, spectrum in zip(one.transitions(), one.eigenvalues(), strict=True):
            found = torch.linalg.eigvals(A)
            assert float(found.imag.abs().max()) < 1e-6
            torch.testing.assert_close(found.real.sort().values, spectrum, rtol=0, atol=1e-6)


def test_the_rules_meet_where_they_should() -> None:
    def states(family: str, **options: Any) -> Tensor:
        return StateView(THREE, family=family, overlap=0.4, **options).states()

    def same(*all_states: Tensor) -> None:
        for each in all_states[1:]:
            torch.testing.assert_close(each, all_states[0])

    still = {"decay": 1.0, "step": 0.8}
    erasing = ("deltanet", "gated_deltanet", "kimi_delta", "rwkv7")
    same(*(states(family, **still) for family in erasing))
    same(*(states(family, **still) for family in ("linear", "retention", "mamba2", "gated_linear")))
    same(states("kimi_delta", decay=0.5, step=0.0), states("rwkv7", decay=0.5, step=0.0))


def test_a_step_of_one_reads_back_what_was_written() -> None:
    for family in ("deltanet", "gated_deltanet", "kimi_delta"):
        one = StateView(THREE, family=family, decay=0.7, step=1.0, overlap=0.4)
        k, v = one.keys_and_values()
        for t in range(len(k)):
            torch.testing.assert_close(k[t] @ one.states()[t + 1], v[t])


def test_keys_have_length_one_and_the_overlap() -> None:
    for overlap in (0.0, 0.35, 0.9):
        keys = StateView(overlap=overlap)._keys()
        wanted = torch.full((4, 4), overlap, dtype=torch.float64).fill_diagonal_(1)
        torch.testing.assert_close(keys @ keys.mT, wanted)


# ---- what is said


def test_the_sentence_says_what_is_returned() -> None:
    assert StateView(family="linear").description() == (
        "Linear attention, token 4 of 8, Ada → gold: the eigenvalues of A are 1.00, 1.00, 1.00 and "
        "1.00. Now Ada returns red or gold (1.00), Bob returns green (1.00) and Cleo returns blue "
        "(1.00): 2 of 3 keys return their newest value."
    )
    one = StateView([("k", "v")], family="retention", decay=0.5)
    assert one.description() == (
        "Retention, token 1 of 1, k → v: the eigenvalue of A is 0.50. Now k returns v (1.00): 1 of "
        "1 key returns its newest value."
    )
    gone = StateView(family="mamba2", preset="a new topic", token=4, decay=0.0)
    assert "Ada returns nothing" in gone.description()


@pytest.mark.parametrize("name", PRESETS)
def test_what_an_example_asks_to_try_happens(name: str) -> None:
    def right(family: str, **options: Any) -> int:
        return StateView(preset=name, **options).right()[family]

    def read(family: str, **options: Any) -> Tensor:
        return StateView(preset=name, family=family, **options).readings()

    if name == "told anew":
        assert "red or gold" in StateView(family="linear").description()
        fading = read("retention")
        assert fading[0, 3] > fading[0, 0] > 0
        assert fading[1, 1] < 1
        assert read("deltanet")[0].tolist() == [0, 0, 0, 1]
    elif name == "similar keys":
        assert right("linear") < right("deltanet")
        assert right("linear", overlap=0.0) > right("linear")
    elif name == "a new topic":
        assert [best(row) for row in read("mamba2").tolist()] == [[], [0], [], []]
        assert best(read("gated_linear")[0].tolist()) == [0]
        decayed = StateView(preset=name, family="mamba2").decays()[:, 0]
        assert decayed.tolist()[:4] == [1, 1, 1, 1]
        assert decayed[4] < 0.02
        assert (StateView(preset=name, family="retention").decays() == 0.6).all()
    else:
        assert float(StateView(preset=name).eigenvalues()[3, 0]) == pytest.approx(-1)
        ups = [float(read("deltanet", token=t)[0, 0]) for t in (0, 2, 4, 6)]
        assert ups == pytest.approx([2, 0, 2, 0], abs=1e-9)
        far = StateView(preset=name, step=2.5)
        assert float(far.states().abs().amax((1, 2))[-1]) > 4


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0.005, -0.004, -1.5, 1234.5, -1e12)] == [
        *("0.01", "0.00", "−1.50", "1.2 · 10^3", "−1.0 · 10^12"),
    ]  # fmt: skip


def test_states_are_set_and_refused_in_sentences() -> None:
    one = StateView(THREE)
    assert one.token == 4
    one.facts = [("z", "two"), *THREE[1:]]
    one.family, one.decay, one.step, one.overlap, one.token = "rwkv7", 1, 2, 0.5, 0
    assert one.facts[0] == ["z", "two", 1.0]
    for name, value, words in (
        ("facts", THREE[:4], "`facts` should hold 5 facts, as before, got 4"),
        ("facts", [("w", "one"), *THREE[1:]], "`facts` has a key 'w'; this StateView has x, y, z"),
        ("facts", [("x", "six"), *THREE[1:]], "`facts` has a value 'six'"),
        ("facts", [("x",), *THREE[1:]], "each of `facts` should be (key, value)"),
        ("facts", [("x", 3), *THREE[1:]], "the value of each of `facts` should be a name"),
        ("facts", [("x", "one", -1), *THREE[1:]], "`forget` should be from 0 to 20, got -1"),
        ("decay", 1.5, "`decay` should be from 0 to 1, got 1.5"),
        ("step", -0.1, "`step` should be from 0 to 2.5, got -0.1"),
        ("overlap", 1, "`overlap` should be from 0 to 0.9, got 1"),
        ("token", 5, "`token` should be 0 to 4 here, got 5"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    for arguments, words in (
        ({"facts": THREE, "preset": "told anew"}, "`preset` or `facts`, not both"),
        ({"preset": "told new"}, "there is no preset 'told new'; did you mean"),
        ({"family": "deltanets"}, "there is no family 'deltanets'; did you mean"),
        ({"facts": []}, "`facts` should hold 1 to 16 facts, got 0"),
        ({"facts": [("x", "y")] * 17}, "`facts` should hold 1 to 16 facts, got 17"),
        ({"facts": [(str(i), "y") for i in range(7)]}, "at most 6 different keys, got 7"),
        ({"token": 8}, "`token` should be 0 to 7 here, got 8"),
        ({"decay": float("nan")}, "`decay` should be a finite number"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(words)):
            StateView(**arguments)


def test_the_picture_shows_the_equation() -> None:
    one = StateView([("<b>", "red"), ("c", "blue"), ("<b>", "blue")])
    drawing = one.still()
    assert len([part for kind, part in drawing.parts if kind == "map"]) == 5
    texts = [part["content"] for kind, part in drawing.parts if kind == "text"]
    assert {"·", "+", "=", "A = I − b k kᵀ", "blue ✓"} <= set(texts)
    assert "<b>" not in drawing.svg("")


if __name__ == "__main__":
    write("state.json", cases())
