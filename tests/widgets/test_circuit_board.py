"""CircuitBoard: every cut is that of the real model with hooks, what a cut wire carries is what is
said, and the wires that carry the answer of the copier are those that are known."""

import re
from base64 import b64encode
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.circuit_board import CircuitBoard, paths, words
from attnlab_widgets.circuit_board.example import hostile
from attnlab_widgets.circuit_board.layout import board_of
from attnlab_widgets.draws import uniform
from attnlab_widgets.forward import forward
from attnlab_widgets.network import network_of
from attnlab_widgets.words import clipped

from attnlab.lens.patching import Patching, Path
from attnlab.models.tiny import TinyTransformer
from attnlab.pretrained import load
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write
from tests.widgets.test_walk import small

CIRCUIT = {
    ("letters", "0.1 value"),
    ("0.1", "1.0 key"),
    ("0.1", "1.1 key"),
    ("letters", "1.0 query"),
    ("letters", "1.1 query"),
    ("letters", "1.0 value"),
    ("letters", "1.1 value"),
    ("1.0", "logits"),
    ("1.1", "logits"),
}
"""The induction circuit: the previous letter into the keys, the letter into queries and values."""


# the cuts, by the model itself


def by_hooks(model: TinyTransformer, tokens: Any, cuts: Any, instead: Any, through: bool) -> Any:
    """The logits (n, vocab) of the model's own modules in float64, its wires cut by hand.

    Each receiver is given the stream that it would read, taken apart by runs of the model: this
    shares no line with ``paths``.
    """
    model = model.double()
    stack: Any = model.decoder
    blocks = list(stack.blocks)
    ids = torch.tensor([tokens])
    letters = model.embedding.weight[ids]
    places = torch.zeros_like(letters)
    if model.positions is not None:
        seen: list[Any] = []
        hook = blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        model(ids)
        hook.remove()
        places = seen[0] - letters
    added = {"letters": letters, "places": places}
    feeds: list[Any] = []

    def stream(layer: int, receiver: str) -> Any:
        own = [sender for sender, to in cuts if to == receiver]
        pick = lambda name: instead[name][None] if name in own else added[name]  # noqa: E731
        x = pick("letters") + pick("places")
        for at in range(layer):
            heads = blocks[at].attention.heads
            x = x + sum(pick(f"{at}.{head}") for head in range(heads.heads))
            if heads.output.bias is not None:
                x = x + heads.output.bias
            norm, feed = blocks[at].feed_forward_residual.norm, blocks[at].feed_forward
            x = x + (feed(norm(x)) if own and through else feeds[at])
        return x

    for layer, block in enumerate(blocks):
        heads, norm = block.attention.heads, block.attention_residual.norm
        given = {}
        for into, module in (("query", heads.query), ("key", heads.key), ("value", heads.value)):
            each = [module(norm(stream(layer, f"{layer}.{h} {into}"))) for h in range(heads.heads)]
            wide = each[0].shape[-1] // heads.heads
            given[module] = torch.cat(
                [x[..., h * wide : (h + 1) * wide] for h, x in enumerate(each)], -1
            )
        joined: list[Any] = []
        hooks = [m.register_forward_hook(lambda _, __, ___, x=x: x) for m, x in given.items()]
        hooks.append(heads.output.register_forward_pre_hook(_into(joined)))
        block.attention(norm(stream(layer, "")))
        for hook in hooks:
            hook.remove()
        wide = joined[0].shape[-1] // heads.heads
        for h in range(heads.heads):
            only = torch.zeros_like(joined[0])
            only[..., h * wide : (h + 1) * wide] = joined[0][..., h * wide : (h + 1) * wide]
            added[f"{layer}.{h}"] = only @ heads.output.weight.T
        attended = stream(layer, "") + sum(added[f"{layer}.{h}"] for h in range(heads.heads))
        if heads.output.bias is not None:
            attended = attended + heads.output.bias
        feeds.append(block.feed_forward(block.feed_forward_residual.norm(attended)))
    last: list[Any] = []
    hook = stack.norm.register_forward_pre_hook(lambda _, __: (stream(len(blocks), "logits"),))
    last.append(model(ids)[0])
    hook.remove()
    return last[0]


def _into(found: list[Any]) -> Any:
    return lambda _, given: found.append(given[0])


def drawn(at: int, vocab: int, longest: int) -> list[int]:
    """A text: half of them repeat."""
    n = 2 + int(uniform(at, 0) * (longest - 1))
    size = n if at % 2 else max(1, n // 2)
    run = [int(uniform(at, 1 + place) * vocab) for place in range(size)]
    return [run[place % size] for place in range(n)]


def some_cuts(wires: Any, at: int) -> list[Any]:
    """One to four wires."""
    count = 1 + at % 4
    return [wires[int(uniform(at, 100 + nth) * len(wires))] for nth in range(count)]


MODELS: list[dict[str, Any]] = [
    {},
    {"tie": False, "positions": "sinusoidal"},
    {"positions": "none", "logit_scale": 0.3},
    {"attention_options": {"bias": True, "head_dim": 5}},
]


@pytest.mark.parametrize("options", MODELS, ids=str)
@torch.no_grad()
def test_cuts_are_those_of_the_model(options: Any) -> None:
    model = small(**options).double().eval()
    network = network_of(model, None)
    wires = paths.wires(network)
    for at in range(25):
        tokens = drawn(at, 5, 11)
        other = paths.run(network, paths.reordered(tokens, at)).added
        for through in (True, False):
            cuts = some_cuts(wires, at)
            found = paths.run(network, tokens, cuts, other, through).logits
            wanted = by_hooks(model, tokens, cuts, other, through)
            assert (found - wanted).abs().max() < 1e-5, (tokens, cuts)


@torch.no_grad()
def test_cuts_of_the_copier_on_random_texts() -> None:
    model = load("induction")[0].double().eval()
    board = CircuitBoard()
    seen: set[Any] = set()
    for at in range(60):
        board.text = "".join(board.network.names[token] for token in drawn(at, 64, 20))
        board.instead = ("zeros", "the mean", "another text")[at % 3]
        board.order, board.through = at, at % 5 > 0
        cuts = some_cuts(board.wires, at)
        instead = board.replaced()
        wanted = by_hooks(model, board.tokens(), cuts, instead, board.through)
        assert (board.run(cuts).logits - wanted).abs().max() < 1e-5
        seen |= set(cuts)
    assert len(seen) > 35


def test_without_a_cut_it_is_the_pass_of_walk() -> None:
    for options in MODELS:
        network = network_of(small(**options), None)
        tokens = [0, 1, 2, 3, 0, 1]
        found = paths.run(network, tokens).logits
        assert torch.allclose(found, forward(network, tokens)["logits"], atol=1e-12)


@pytest.mark.parametrize("through", [True, False])
def test_one_cut_is_the_path_patching_of_the_lens(through: bool) -> None:
    """A single cut that carries another text, for every wire from letters or a head."""
    model = load("induction")[0].double()
    board = CircuitBoard(through=through)
    text = torch.tensor([board.tokens()])
    other = torch.tensor([paths.reordered(board.tokens(), board.order)])
    patching = Patching(model, text, other, answer=board.watched, instead=0)
    for sender, receiver in board.wires:
        if sender == "places":
            continue
        name, _, into = receiver.partition(" ")
        to = None if name == "logits" else tuple(map(int, name.split(".")))
        who = "embedding" if sender == "letters" else tuple(map(int, sender.split(".")))
        path = Path(who, to, into or "logits", through)  # type: ignore[arg-type]
        found = board.run([(sender, receiver)]).logits
        assert (found - patching.logits(path)[0]).abs().max() < 1e-9, (sender, receiver)


# the circuit that is known


def planted(n: int = 12) -> TinyTransformer:
    """A copier made by hand in float64: head 0.0 hands every place the letter before it, head 1.0
    looks for it and copies; head 0.1 and 1.1 do nothing. Half of the stream is the negative of the
    other half, so that the norms only scale it."""
    from torch import nn

    model = TinyTransformer(
        6, dim=72, layers=2, heads=2, max_len=n, tie=False,
        attention_options={"head_dim": 12}, feed_options={"hidden": 1},
    ).double()  # fmt: skip
    stack: Any = model.decoder
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1)
        here, before, copied, place = 0, 6, 12, 18  # slots of the first half, of 36
        one = torch.eye(36, dtype=torch.float64)
        whole = torch.cat([one, -one], 0)  # (72, 36): a slot and its negative
        model.embedding.weight[:] = whole[:, here : here + 6].T
        positions: Any = model.positions
        table = next(positions.parameters())
        table[:n] = whole[:, place : place + n].T
        first, second = (block.attention.heads for block in stack.blocks)
        read = whole.T / 2
        strong = 40.0
        for at in range(12):
            first.query.weight[at] = strong * read[place + at]
            if at + 1 < 12:
                first.key.weight[at + 1] = read[place + at]
        first.value.weight[:6] = read[here : here + 6]
        first.output.weight[:, :6] = 3 * whole[:, before : before + 6]
        second.query.weight[:6] = strong * read[here : here + 6]
        second.key.weight[:6] = read[before : before + 6]
        second.value.weight[:6] = read[here : here + 6]
        second.output.weight[:, :6] = 3 * whole[:, copied : copied + 6]
        output: Any = model.output
        output.weight[:] = 9 * read[copied : copied + 6]
    return model


def test_a_planted_circuit_is_found_and_nothing_else() -> None:
    board = CircuitBoard(planted(), "abcdefabc", names=list("abcdef"))
    assert board.answer().chance > 0.95
    assert board.watched == 3
    carries = {wire for wire, effect in board.effects().items() if abs(effect) > 0.05}
    assert carries == {
        ("letters", "0.0 value"),
        ("0.0", "1.0 key"),
        ("letters", "1.0 query"),
        ("letters", "1.0 value"),
        ("1.0", "logits"),
    }
    still = [abs(effect) for wire, effect in board.effects().items() if "0.1" in wire[0]]
    assert max(still) < 1e-9
    board.instead = "zeros"
    carries = {wire for wire, effect in board.effects().items() if abs(effect) > 0.05}
    assert {("places", "0.0 query"), ("places", "0.0 key")} < carries


def test_the_circuit_of_the_copier_is_the_known_one() -> None:
    board = CircuitBoard()
    effects = board.effects()
    assert {wire for wire, effect in effects.items() if abs(effect) > 0.3} == CIRCUIT
    assert max(abs(effect) for wire, effect in effects.items() if wire not in CIRCUIT) < 0.02
    assert words.caption(board.run().weights["0.1"], board.tokens(), "letter").startswith(
        "looks one letter"
    )
    for name in ("1.0", "1.1"):
        said = words.caption(board.run().weights[name], board.tokens(), "letter")
        assert said.startswith("where a letter repeats, behind the same, 9")


def test_places_carry_nothing_of_another_text_and_much_of_zeros() -> None:
    board = CircuitBoard()
    wire = ("places", "0.1 key")
    assert board.effects()[wire] == 0
    board.instead = "zeros"
    assert board.effects()[wire] > 0.9


# what is said and what is set


def test_what_is_said() -> None:
    board = CircuitBoard()
    assert board.description() == (
        "The model writes “r” with 99.8 %. After “y” came “r” the last time. The thickest "
        "wire leads from the letters into the value of head 0.1: cut alone, “r” goes from 99.8 % "
        "to 0.0 %."
    )
    board.cuts = [["0.1", "1.1 key"]]
    assert board.description() == (
        "With the wire from head 0.1 into the key of head 1.1 cut, the model writes “a” with "
        "41.2 % instead of “r” with 99.8 %."
    )
    board.cuts = [["0.0", "logits"]]
    assert board.description() == (
        "With the wire from head 0.0 to the logits cut, nothing changes: the model writes “r” with "
        "99.8 %."
    )
    board.cuts = [["0.1", "1.0 key"], ["0.1", "1.1 key"]]
    assert board.description().startswith("With 2 wires cut, the model writes “")
    board.cuts, board.measure = [], "logit"
    assert "the logit of “r” above the mean goes from 11.5 to −" in board.description()
    board.at = 3
    assert "In the text comes “p”; “o” did not occur before." in board.description()
    board.text, board.at = "abc", -1
    assert "“c” did not occur before, so no letter is known to be right." in board.description()


def test_a_letter_that_was_followed_by_two_is_told_by_the_last() -> None:
    board = CircuitBoard(text="hellohel")
    assert "After “l” came “o” the last time. " in board.description()
    board.at = 2
    assert "In the text comes “l”; “l” did not occur before." in board.description()
    board.text, board.at = "abacab", 2
    assert "After “a” came “b” the last time, and here comes “c”." in board.description()


def test_where_no_cut_can_change_anything() -> None:
    nothing = "No cut changes anything, as the other text is this one again"
    for text in ("a", "aaa"):
        board = CircuitBoard(text=text)
        assert nothing in board.description()
        board.cuts = [["0.1", "1.1 key"]]
        assert "cut, nothing changes: the model writes" in board.description()
        assert nothing in board.description()
        board.instead = "zeros"
        assert nothing not in board.description()


def test_a_caption_rests_on_several_rows_that_tell() -> None:
    def said(text: str, at: Any) -> str:
        n = len(text)
        weights = torch.zeros(n, n)
        for row in range(n):
            weights[row, at(row)] = 1
        return words.caption(weights, [ord(letter) for letter in text], "letter")

    assert said("a", lambda _: 0) == "looks at itself, 100 %"
    assert said("abcd", lambda row: max(0, row - 1)) == "looks one letter back, 100 %"
    assert said("aaaa", lambda row: max(0, row - 1)) == "no one habit"
    assert said("abac", lambda row: int(row in (1, 2))) == "no one habit"
    behind = [0, 1, 2, 1, 2]
    assert (
        said("abcab", lambda row: behind[row]) == "where a letter repeats, behind the same, 100 %"
    )


def test_untrained_is_said() -> None:
    board = CircuitBoard(small(), "abca", untrained=True)
    assert board.untrained
    assert ">untrained<" in board.still().svg("")


def test_a_long_word_is_cut_by_characters_in_the_picture() -> None:
    assert clipped("a" * 120, 110) == "a" * 109 + "…"
    assert clipped("abcdef", 6) == "abcdef"


def test_several_cuts_are_felt_together() -> None:
    board = CircuitBoard(instead="the mean")
    one, other = ["0.1", "1.0 key"], ["0.1", "1.1 key"]
    alone = [board.answer([each]).chance for each in (one, other)]
    both = board.answer([one, other]).chance
    assert min(abs(both - each) for each in alone) > 1e-6


def test_the_other_text_has_the_same_letters_in_another_order() -> None:
    board = CircuitBoard()
    for order in range(20):
        board.order = order
        other = board.other()
        assert sorted(other[:16]) == sorted(board.text[:16])
        assert other[16:] == other[:6]
        assert all(a != b for a, b in zip(other, board.text, strict=True))
    board.text = "aaa"
    assert board.other() == "aaa"


def test_bad_arguments() -> None:
    board = CircuitBoard(text="abcabc")
    wrong: Any = 3
    for name, value, said in (
        ("cuts", [["0.1", "0.0 key"]], "this board has no wire ['0.1', '0.0 key']"),
        ("cuts", [["0.1"]], "this board has no wire ['0.1']"),
        ("cuts", "0.1", "`cuts` should be a list"),
        ("cuts", [wrong], "`a wire of cuts` should be a list"),
        ("cuts", [[["a"], 1]], "this board has no wire [['a'], 1]"),
        ("text", "", "Type at least one letter"),
        ("text", "a b", "The model does not know U+0020."),
        ("text", "a" * 10_000, "That is 10,000 tokens"),
        ("at", 64, "`at` should be from -1 to 63"),
        ("order", -1, "`order` should be from 0 to"),
        ("least", 1.5, "`least` should be from 0 to 1, got 1.5"),
        ("instead", "noise", "'instead' trait"),
        ("measure", "rank", "'measure' trait"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(said)):
            setattr(board, name, value)
    deep = TinyTransformer(5, dim=12, layers=4, heads=4, max_len=11)
    with pytest.raises(ValueError, match="this model has 402 wires, more than the 240"):
        CircuitBoard(deep, "abc")
    with pytest.raises(ValueError, match="which is of kind 'classifier'"):
        CircuitBoard(TinyTransformer(5, dim=12, layers=1, heads=1, kind="classifier", classes=2))


def test_cuts_are_kept_once_and_in_order() -> None:
    board = CircuitBoard(text="abcabc")
    board.cuts = [("1.0", "logits"), ("0.1", "1.0 key"), ("1.0", "logits")]
    assert board.cuts == [["1.0", "logits"], ["0.1", "1.0 key"]]


def test_the_still_picture_follows_the_cuts() -> None:
    board = CircuitBoard(text="abcabc")
    pictures = {board.still().svg("")}
    board.cuts = [["0.1", "1.0 key"]]
    pictures.add(board.still().svg(""))
    board.instead = "zeros"
    pictures.add(board.still().svg(""))
    board.measure = "logit"
    pictures.add(board.still().svg(""))
    assert len(pictures) == 4
    assert "A cut wire carries: zeros." in board.still().svg("")


SHAPES = [(2, 2), (1, 1, 3), (3,), (2, 4, 2)]


@pytest.mark.parametrize("heads", SHAPES, ids=str)
@pytest.mark.parametrize("wide", [326, 566, 900])
def test_no_wire_covers_a_chip(heads: Any, wide: float) -> None:
    _, board = laid(heads, wide)
    chips = list(board.chips.values())
    for chip in chips:
        assert chip.x >= 0
        assert chip.x + chip.wide <= wide + 1e-9
        assert chip.wide > 40
    for path in board.paths:
        for start in range(0, len(path) - 1, 3):
            points = np.array(path[start : start + 4])
            for t in np.linspace(0, 1, 60):
                powers = np.array([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3])
                x, y = powers @ points
                for chip in chips:
                    inside = chip.x < x < chip.x + chip.wide and chip.y < y < chip.y + chip.high
                    assert not inside or min(y - chip.y, chip.y + chip.high - y) < 1e-6


def laid(heads: Any, wide: float) -> Any:
    names = [[f"{at}.{head}" for head in range(count)] for at, count in enumerate(heads)]
    rows = [["letters", "places"], *names, ["logits"]]
    wires = [
        (sender, f"{name} {into}")
        for row in range(1, len(rows) - 1)
        for name in rows[row]
        for into in paths.INTO
        for sender in chain(*rows[:row])
    ]
    wires += [(sender, "logits") for sender in chain(*rows[:-1])]
    return (rows, wires), board_of(rows, wires, wide)


# the page


def cases() -> dict[str, Any]:
    """What Python computes and says of small models with cuts, and of the copier's answers."""
    boards = [
        CircuitBoard(small(), "abcddecab", cuts=[["0.1", "1.0 key"], ["places", "logits"]]),
        CircuitBoard(small(tie=False, positions="sinusoidal", layers=2), "abca", instead="zeros",
                     cuts=[["letters", "1.1 query"]], through=False),
        CircuitBoard(small(attention_options={"bias": True, "head_dim": 5}, layers=2), "eabcea",
                     instead="the mean", measure="logit", cuts=[["0.1", "1.0 value"]]),
        CircuitBoard(small(logit_scale=0.3, positions="none", layers=1), "ba", order=7),
        hostile(("<b>", "b", "\u202ec", "{}")),
    ]  # fmt: skip
    many = CircuitBoard(small(), "abcddecab")
    shapes = (((2, 2), 326), ((1, 1, 3), 566))
    return {
        "boards": [_case(board) for board in boards],
        "cuts": [_cut(many, at) for at in range(200)],
        "laid": [[*laid(*shape)[0], shape[1], _rounded(laid(*shape)[1].paths)] for shape in shapes],
    }


def _rounded(found: Any) -> Any:
    return [[[round(x, 6) for x in point] for point in path] for path in found]


def _cut(board: CircuitBoard, at: int) -> list[Any]:
    """A random text with random cuts: the sums of its logits, and the last of them."""
    tokens = drawn(1000 + at, 5, 11)
    cuts = some_cuts(board.wires, 1000 + at)
    board.text = "".join(board.network.names[token] for token in tokens)
    board.instead = ("zeros", "the mean", "another text")[at % 3]
    board.order, board.through = at, at % 5 > 0
    logits = board.run(cuts).logits
    numbers = [float(logits.sum()), float(logits.square().sum()), float(logits[-1, -1])]
    state = {"instead": board.instead, "order": board.order}
    return [tokens, [list(wire) for wire in cuts], state, board.through, numbers]


def _case(board: CircuitBoard) -> dict[str, Any]:
    network, tokens = board.network, board.tokens()
    names = ("text", "cuts", "instead", "order", "measure", "through")
    state = {name: getattr(board, name) for name in names}
    now = board.run()
    said = [board.description()]
    alone = {" > ".join(wire): effect for wire, effect in board.effects().items()}
    board.cuts = []
    said.append(board.description())
    return state | {
        "_told": board._told,
        "numbers": b64encode(board._numbers).decode(),
        "means": b64encode(board._means).decode(),
        "logits": now.logits.flatten().tolist()[-20:],
        "weights": {name: float(x.square().sum()) for name, x in now.weights.items()},
        "captions": [words.caption(x, tokens, words.noun(network)) for x in now.weights.values()],
        "effects": alone,
        "said": said,
        "other": paths.reordered(tokens, board.order),
        "wires": [list(wire) for wire in paths.wires(network)],
    }


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("circuit.json", cases(), NEAR_FLOAT32)


if __name__ == "__main__":
    write("circuit.json", cases())
