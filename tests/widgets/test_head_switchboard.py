"""HeadSwitchboard: each choice predicts what the model predicts whose heads are cut by hand."""

import copy
import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.head_switchboard import HeadSwitchboard, shown_importance

import attnlab
from attnlab.core.heads import Heads
from attnlab.lens.head_states import MASKED, MOST_BYTES, run
from attnlab.lens.logit_parts import logit_parts
from attnlab.models.tiny import TinyTransformer
from attnlab.pretrained import load
from tests.widgets.stored import stored, write

WORD = "uncopyrightables"


def small(layers: int = 3, heads: int = 2, **options: Any) -> TinyTransformer:
    torch.manual_seed(5)
    model = TinyTransformer(
        29, dim=4 * heads, layers=layers, heads=heads, **({"max_len": 24} | options)
    )
    for parameter in model.parameters():  # so that every head matters
        parameter.data.mul_(2.5)
    return model


def cut(model: TinyTransformer, silent: Any) -> TinyTransformer:
    """The same model with the columns of its silent heads in the output matrices set to zero."""
    model = copy.deepcopy(model)
    layers = [module for module in model.modules() if isinstance(module, Heads)]
    for layer, head in silent:
        width = layers[layer].value_dim
        layers[layer].output.weight.data[:, width * head : width * (head + 1)] = 0
    return model.eval()


@pytest.mark.parametrize("heads", [None, [(1, 1), (0, 0), (2, 1)]])
def test_each_switch_has_the_importance_of_its_head(heads: Any) -> None:
    """The slope of the loss at a gate of 1, by a small step of the gate."""
    model = small(dropout=0.5).train().double()
    board = HeadSwitchboard(model, "attention", heads=heads)
    ids = torch.tensor([[ord(letter) - ord("a") for letter in "attention"]])

    def loss(layer: int, head: int, gate: float) -> float:
        one = copy.deepcopy(model).eval()
        of = [module for module in one.modules() if isinstance(module, Heads)][layer]
        width = of.value_dim
        of.output.weight.data[:, width * head : width * (head + 1)] *= gate
        with torch.no_grad():
            logits = one(ids)[0, :-1]
        return torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item()

    for (layer, head), shown in zip(board._board["heads"], board.importance(), strict=True):
        slope = abs(loss(layer, head, 1.001) - loss(layer, head, 0.999)) / 0.002
        assert float(shown) == pytest.approx(slope, rel=0.06, abs=6e-5)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert board.importance()[0] in board.still().svg("the heads")


def test_an_importance_has_two_digits_and_at_most_four_places() -> None:
    shown = [
        shown_importance(x) for x in (0.0, 0.00002, 0.00031, 0.00412, 0.0527, 0.318, 1.0, 12.1)
    ]
    assert shown == ["0", "0", "0.0003", "0.0041", "0.053", "0.32", "1.0", "12"]


@pytest.mark.parametrize("heads", [None, [(1, 1), (0, 0), (2, 1)]])
def test_every_choice_is_the_model_without_those_heads(heads: Any) -> None:
    model = small(dropout=0.5).train()
    board = HeadSwitchboard(model, "attention", heads=heads)
    ids = torch.tensor([[ord(letter) - ord("a") for letter in "attention"]])
    switches = sorted(heads or itertools.product(range(3), range(2)))
    different = set()
    for count in range(len(switches) + 1):
        for silent in itertools.combinations(switches, count):
            board.silent = silent
            with torch.no_grad():
                guesses = cut(model, silent)(ids).argmax(-1)[0]
            right = guesses[:-1] == ids[0, 1:]
            assert board.right().equal(right)
            wanted = [chr(97 + g) if g < 26 else f"#{g}" for g in guesses[:-1].tolist()]
            assert board.guesses() == wanted
            different.add(tuple(wanted))
    assert len(different) > 2 ** len(switches) / 2, "the choices can be told apart"
    assert model.training, "the model is as it was"
    assert model.decoder.blocks[0].training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_maps_are_those_that_the_switches_below_leave() -> None:
    model, ids = small(), torch.tensor([[0, 19, 19, 4, 13, 19, 8]])
    board = HeadSwitchboard(model, ids[0])
    for silent in ([], [(0, 0)], [(0, 1), (1, 0)], [(2, 0), (2, 1), (1, 1)]):
        board.silent = silent
        watched = cut(model, silent)
        with attnlab.watch(watched) as seen, torch.no_grad():
            watched(ids)
        for layer, head in itertools.product(range(3), range(2)):
            levels = board.map_of((layer, head))
            allowed = levels != MASKED
            assert allowed.tolist() == seen[layer].mask[0, 0].tolist()
            wanted = 254 * seen[layer].weights[0, head].sqrt().numpy()
            assert np.abs(levels - wanted)[allowed].max() <= 0.51


def test_the_copier_says_the_word_again_unless_a_needed_head_is_silent() -> None:
    copier, _ = load("induction")
    board = HeadSwitchboard(copier, WORD * 2)
    assert board.right().tolist() == [False] * 16 + [True] * 15
    assert board.description() == (
        "With all 4 heads, 15 of the 15 letters that repeat and 0 of the 16 others are right."
    )
    board.silent = [(1, 0)]
    assert board.description() == (
        "Without head 1.0 the same 15 of the 15 letters that repeat and 0 of the 16 others are "
        "right as with all heads."
    )
    board.silent = [(1, 1), (1, 0)]
    assert board.silent == [[1, 0], [1, 1]]
    assert board.right().sum() <= 2
    now = int(board.right()[16:].sum()), int(board.right()[:16].sum())
    assert board.description() == (
        f"Without heads 1.0 and 1.1, {now[0]} of the 15 letters that repeat and {now[1]} of the 16 "
        "others are right; with all, 15 and 0."
    )


def test_of_a_text_that_repeats_nothing_all_tokens_are_counted_together() -> None:
    assert re.fullmatch(
        r"With all 6 heads, \d of 3 letters are right.",
        HeadSwitchboard(small(), "abcd").description(),
    )
    assert HeadSwitchboard(small(), "abab")._board["repeats"] == [False, False, True]
    once = HeadSwitchboard(small(), "abab").description()
    assert "of the 1 letter that repeats and" in once


@pytest.mark.parametrize("heads", [None, [(1, 1), (0, 0), (2, 1)]])
def test_the_writers_of_a_letter_are_those_of_the_model_without_the_silent_heads(
    heads: Any,
) -> None:
    """Against the parts of a model whose output matrices are cut, and against its own logits."""
    model = small(dropout=0.5).train()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(std=0.3)
    board = HeadSwitchboard(model, "attention", heads=heads)
    ids = torch.tensor([[ord(letter) - ord("a") for letter in "attention"]])
    switches = board._states.heads
    for silent in ([], switches[:1], switches[1:3], switches):
        board.silent = silent
        without = cut(model, silent)
        wanted = logit_parts(without, ids, ids.roll(-1, 1), others="mean")
        with torch.no_grad():
            logits = without(ids)[0]
        for at in (1, 4, 8):
            found = board.writers(at)
            values = wanted.values[:, 0, at - 1].tolist()
            own = dict(zip(map(str, wanted.parts), values, strict=True))
            biases = [own.pop(name) for name in [*own] if "bias" in name]
            assert {"embedding", "positions", "head 2.1", "feed-forward 0"} < set(found)
            assert found == pytest.approx({**own, "biases": sum(biases)}, abs=1e-4)
            after = logits[at - 1]
            above = float(after[ids[0, at]] - after.mean())
            assert sum(found.values()) == pytest.approx(above, abs=1e-4)
        for layer, head in silent:
            assert board.writers(5)[f"head {layer}.{head}"] == 0
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_mean_is_over_the_letters_that_repeat() -> None:
    board = HeadSwitchboard(small(), "abcabc")
    each = [board.writers(at) for at in (4, 5)]
    repeats = [at + 1 for at, again in enumerate(board._board["repeats"]) if again]
    assert repeats == [4, 5]
    for name, value in board.writers().items():
        assert value == pytest.approx(sum(one[name] for one in each) / 2, abs=1e-6)
    once = HeadSwitchboard(small(), "abc")
    means = {name: (once.writers(1)[name] + v) / 2 for name, v in once.writers(2).items()}
    assert once.writers() == pytest.approx(means, abs=1e-6)


def test_in_the_copier_the_last_layer_writes_and_the_first_writes_nothing_itself() -> None:
    copier, _ = load("induction")
    board = HeadSwitchboard(copier, WORD * 2)
    found = board.writers()
    last = [found[name] for name in ("head 1.0", "head 1.1", "feed-forward 1")]
    assert min(last) > 1
    assert sum(last) > 0.95 * sum(found.values())
    assert abs(found["head 0.1"]) < 0.1, "and yet 7 letters are wrong without it"
    board.silent = [(0, 1)]
    assert board.writers()["head 1.1"] < 0.7 * found["head 1.1"]
    svg = board.still().svg("the heads")
    assert "feed-forward 1" in svg
    assert f"{sum(board.writers().values()):+.2f}" in svg


def test_parts_of_too_many_choices_are_those_of_all_heads_alone() -> None:
    writer, documentation = load("documentation")
    heads = [(layer, head) for layer in (2, 3) for head in range(4)]
    text = "If the object is a class, return the name"
    board = HeadSwitchboard(writer, text, task=documentation, heads=heads, silent=heads[:1])
    told, n = board._board["writers"], len(board._ids)
    assert 4 * 2**8 * (n - 1) * len(told["parts"]) > MOST_BYTES
    assert told["choices"] == 1
    assert len(board._writers) == 4 * (n - 1) * (len(told["parts"]) + 2)
    before = board.writers(3)
    board.silent = []
    assert board.writers(3) == before
    assert before["head 2.0"] != 0
    few = HeadSwitchboard(writer, text, task=documentation, heads=heads[:2])
    assert few._board["writers"]["choices"] == 4
    assert few.writers(3) == pytest.approx(before, abs=1e-4)


def test_bars_of_all_heads_on_say_so_in_the_still() -> None:
    writer, documentation = load("documentation")
    heads = [(layer, head) for layer in (2, 3) for head in range(4)]
    text = "If the object is a class, return the name"
    board = HeadSwitchboard(writer, text, task=documentation, heads=heads)
    said = "With all heads on: a text this long has too many choices to store."
    assert said not in board.still().svg("the heads")
    board.silent = heads[:1]
    assert said in board.still().svg("the heads")
    few = HeadSwitchboard(writer, text, task=documentation, heads=heads[:2], silent=heads[:1])
    assert said not in few.still().svg("the heads")


def test_a_switch_knows_every_part_that_it_silences() -> None:
    """Layers that share their parameters have the same heads."""
    board = HeadSwitchboard(small(depth="shared"), "abcabc", silent=[(0, 1)])
    found = board.writers()
    marked = [
        each["name"] for each in board._board["writers"]["parts"]
        if each.get("switch") == board._states.heads.index((0, 1))
    ]  # fmt: skip
    assert marked == ["head 0.1", "head 1.1", "head 2.1"]
    assert all(found[name] == 0 for name in marked)
    assert all(found[name.replace(".1", ".0")] for name in marked)
    own = HeadSwitchboard(small(), "abcabc", heads=[(0, 1), (2, 0)])
    named = {each["name"]: each.get("switch") for each in own._board["writers"]["parts"]}
    assert {name: bit for name, bit in named.items() if bit is not None} == {
        "head 0.1": 0,
        "head 2.0": 1,
    }


def test_a_model_whose_logits_are_no_sum_says_so() -> None:
    board = HeadSwitchboard(small(layers=2, depth="reversible"), "abcabc")
    assert board._writers == b""
    assert "take depth='plain'" in board._board["writers"]["why"]
    with pytest.raises(ValueError, match="take depth='plain'"):
        board.writers()
    board.still().svg("the heads")


@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_letter_that_nothing_predicts_has_no_writers(at: int) -> None:
    with pytest.raises(ValueError, match="`at` should be from 1 to 2, the tokens that are"):
        HeadSwitchboard(small(), "abc").writers(at)


def test_a_task_encodes_and_names() -> None:
    writer, documentation = load("documentation")
    heads = [(0, 1), (3, 2)]
    text = "If the object is a class"
    board = HeadSwitchboard(writer, text, task=documentation, heads=heads)
    assert board._board["tokens"] == documentation.tokens(documentation.encode(text))
    assert board.description().startswith("With all 16 heads, ")
    assert "tokens are right" in board.description()
    given = HeadSwitchboard(writer, documentation.encode(text), task=documentation, heads=heads)
    assert given._board == board._board


def test_tokens_get_the_names_that_are_given() -> None:
    board = HeadSwitchboard(small(), [3, 1, 3], tokens=["x", "<b>", "x"])
    assert board._board["tokens"] == ["x", "<b>", "x"]
    assert {"x", "<b>"} <= set(board._board["names"])
    assert [board._board["names"][at] for at in board._board["coming"]] == ["<b>", "x"]


def test_too_many_maps_are_refused() -> None:
    model = small(layers=8, heads=1)
    HeadSwitchboard(model, "abcdefgh" * 3)
    model = small(layers=8, heads=1, max_len=48)
    with pytest.raises(ValueError, match=f"more than the {MOST_BYTES:,}"):
        HeadSwitchboard(model, "abcdefgh" * 6)


def test_layers_without_weights_are_refused() -> None:
    model = small(layers=1, attention="linear_transformer")
    with pytest.raises(ValueError, match="no attention weights to show"):
        HeadSwitchboard(model, "abc")


def test_one_pass_for_all_choices() -> None:
    model, passes = small(), []
    model.register_forward_hook(lambda _m, given, _o: passes.append(given[0].shape))
    states = run(model, torch.tensor([1, 2, 3]), [(0, 0), (1, 1)])
    assert passes == [(4, 3)]
    assert {layer: one.shape for layer, one in states.maps.items()} == {
        0: (1, 1, 3, 3),
        1: (2, 1, 3, 3),
    }


@pytest.mark.parametrize("wrong", [[(0, 7)], [0], [(0, 1, 2)], [(0, 0.5)], "0.1", None])
def test_what_is_no_switch_is_refused(wrong: Any) -> None:
    board = HeadSwitchboard(small(), "abc", silent=[(0, 1)])
    with pytest.raises(traitlets.TraitError, match=r"no switch here|pairs|list|whole number"):
        board.silent = wrong
    assert board.silent == [[0, 1]]


def cases() -> list[dict[str, Any]]:
    found = []
    for heads, text in ((None, "abcabc"), ([(0, 1), (2, 0), (2, 1)], "banana")):
        board = HeadSwitchboard(small(), text, heads=heads)
        said = []
        for bits in range(2 ** len(board._states.heads)):
            board.silent = [h for bit, h in enumerate(board._states.heads) if bits >> bit & 1]
            maps = [int(board.map_of(head).sum()) for head in board._states.heads]
            parts = [round(value, 4) for value in board.writers().values()]
            third = [round(value, 4) for value in board.writers(3).values()]
            said.append({"silent": board.silent, "parts": parts, "third": third,
                         "said": board.description(), "maps": maps,
                         "right": int(board.right().sum())})  # fmt: skip
        writers = board._writers.hex()
        found.append(
            {"board": board._board, "maps": list(board._maps), "writers": writers, "states": said}
        )
    return found


def test_the_page_s_reading_is_tested_against_this() -> None:
    for one, other in zip(stored("switches.json"), cases(), strict=True):
        assert one["board"]["heads"] == other["board"]["heads"]
        for then, now in zip(one["states"], other["states"], strict=True):
            for name in ("parts", "third"):  # other processors round otherwise
                assert then.pop(name) == pytest.approx(now.pop(name), abs=2e-3)
            assert then == now


if __name__ == "__main__":
    write("switches.json", cases())
