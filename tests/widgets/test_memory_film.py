"""MemoryFilm: what it shows is what the layers do, position by position and step by step."""

import re
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.memory_film import MemoryFilm, _described, _holds
from attnlab_widgets.memory_film import words as film_words
from attnlab_widgets.memory_film.picture import channels, runs

import attnlab
from attnlab.catalog import card
from attnlab.lens.memories import LOST, Attended, Carried
from attnlab.lens.mixing import mixing_matrix
from attnlab.models.tiny import TinyTransformer
from tests.lens.test_memories import COMPRESSIVE, DIM, XL, N, layer, vectors
from tests.widgets.stored import assert_fresh, stored, write


def film(name: str, n: int = N, **options: Any) -> MemoryFilm:
    return MemoryFilm(layer(name, **options), vectors(n))


def test_layers_in_half_precision_are_shown_too(tmp_path: Path) -> None:
    for name, options in (("transformer_xl", XL), ("gru", {})):
        one = MemoryFilm(layer(name, **options).bfloat16(), vectors())
        one.save_svg(tmp_path / "film.svg")
        exact = film(name, **options)
        found, wanted = (
            x.recorded.weights if name == "transformer_xl" else x.recorded.states
            for x in (one, exact)
        )
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0.05)


@pytest.mark.parametrize("name", ["gru", "transformer_xl"])
def test_what_nobody_trained_is_labelled_where_it_is_said(name: str, tmp_path: Path) -> None:
    options = XL if name == "transformer_xl" else {}
    for untrained in (True, False):
        one = MemoryFilm(layer(name, **options), vectors(), untrained=untrained)
        drawn = one.save_svg(tmp_path / "film.svg").read_text()
        assert (">untrained<" in drawn) is untrained
    with pytest.raises(TypeError, match="`untrained` should be True or False, got 'no'"):
        MemoryFilm(layer("gru"), vectors(), untrained="no")  # type: ignore[arg-type]


# Sentences


def test_the_sentences_have_the_numbers() -> None:
    one = film("compressive_transformer", 18, **COMPRESSIVE)
    own, near, far = (film_words.percent(share) for share in one.shares()[17].tolist())
    assert one.description() == (
        f"Token 17 “17” in segment 5 of 5 attends, on the mean of 2 heads, {own} to its segment, "
        f"{near} to the memory and {far} to the compressed memory. 3 compressed vectors stand for "
        "6 tokens. 6 of the 17 tokens before it have fallen out of reach."
    )
    one.head, one.query = 1, 0
    assert "attends, in head 1, 100 % to its segment, 0 % to the memory" in one.description()
    assert one.description().endswith("It is the first token.")
    one.query = 5
    assert one.description().endswith("No token before it is lost yet.")
    single = film("transformer_xl", 11, **(XL | {"heads": 1}))
    single.query = 6
    assert "in segment 3 of 4 attends " in single.description()
    assert "2 of the 6 tokens before it have fallen out of reach." in single.description()
    state = film("gru")
    low, high = int(state.holds().argmin()), int(state.holds().argmax())
    assert f"channel {low} changes least from one state to the next" in state.description()
    assert f"channel {high} most" in state.description()
    assert repr(state) == f"MemoryFilm: {state.description()}"


def test_half_lives_and_the_head_are_those_that_are_said_and_shown() -> None:
    module = layer("rwkv")
    with torch.no_grad():
        module.decay.copy_(torch.tensor(2.0).log().log().expand(DIM))  # w = ln 2: one token
        module.decay[3] = torch.tensor(np.log(2) / 5).log()
    said = MemoryFilm(module, vectors(), query=5).description()
    assert "channel 3 holds longest, with a half-life of 5.00 tokens" in said
    assert "1 of 10 channels still hold half or more of what was read first." in said
    one = film("transformer_xl", **XL)
    torch.testing.assert_close(one.shares().sum(-1), one.recorded.weights.sum(-1).mean(0))
    one.head = 1
    torch.testing.assert_close(one.weights(), one.recorded.weights[1, one.query])


def test_rows_of_channels_and_runs_of_zones() -> None:
    holds = np.array([3.0, 9.0, 1.0])
    assert channels(holds, True, "number") == [0, 1, 2]
    assert channels(holds, True, "holds") == [1, 0, 2]
    assert channels(holds, False, "holds") == [2, 0, 1]
    assert runs(np.array([4, 4, 2, 1, 1])) == [(4, 0, 2), (2, 2, 3), (1, 3, 5)]


# A model


class Words:
    """Tokens 0, 1, … named by letters, as a task of attnlab does."""

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([ord(letter) - 97 for letter in text])

    def tokens(self, ids: torch.Tensor) -> list[str]:
        return [chr(97 + i) for i in ids.tolist()]


class Twice(torch.nn.Module):
    """The second call of its layer reads what the first one wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layer("transformer_xl", **XL)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(x))


class Idle(Twice):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_layer_that_is_called_twice_is_shown_once_and_not_disturbed() -> None:
    twice, calls = Twice(), []
    handle = twice.register_forward_hook(lambda *given: calls.append(given[2]))
    one = MemoryFilm(twice, vectors())
    handle.remove()
    assert len(one.layers) == 1
    torch.testing.assert_close(calls[0], twice(vectors()))
    alone = MemoryFilm(twice.inner, vectors())
    torch.testing.assert_close(one.recorded.weights, alone.recorded.weights)


def model() -> TinyTransformer:
    torch.manual_seed(0)
    return TinyTransformer(
        26, dim=8, layers=2, heads=2, max_len=32, attention=["transformer_xl", "rwkv"],
        attention_options=[XL, {}],
    )  # fmt: skip


def test_layers_of_a_model_are_shown_on_what_they_read() -> None:
    reader = model().train()
    before = {name: each.clone() for name, each in reader.state_dict().items()}
    one = MemoryFilm(reader, "uncopyrightable", Words(), query=7)
    assert one.tokens == [*"uncopyrightable"]
    assert [type(each).__name__ for each in one.layers] == ["Attended", "Carried"]
    first, second = (block.attention for block in reader.decoder.blocks)
    assert (first.form, second.form) == ("chunked", "chunked")
    assert reader.training
    assert not first._forward_pre_hooks
    assert all(torch.equal(each, before[name]) for name, each in reader.state_dict().items())
    ids, read = Words().encode("uncopyrightable")[None], []
    handle = first.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    reader.eval()(ids)
    handle.remove()
    torch.testing.assert_close(
        one.recorded.weights, mixing_matrix(first, read[0]).matrix[0], rtol=0, atol=1e-5
    )
    one.head, one.layer = 1, 1
    assert one.head is None, "the second layer has no heads"
    assert one.channel == 0
    assert "half-life" in one.description()
    one.channel = 7
    one.layer = 0
    assert one.channel == 0
    assert one.description().startswith("Token 7 “i” in segment 3 of 5")


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    xl, x = layer("transformer_xl", **XL), vectors()
    plain = TinyTransformer(26, dim=8, layers=1, heads=2, max_len=16)
    for make, words in (
        (lambda: MemoryFilm("xl", x), "`module` should be an nn.Module, got str"),
        (lambda: MemoryFilm(plain, [1, 2]), "no layer whose memory can be shown; those are"),
        (lambda: MemoryFilm(layer("full"), x), "no layer whose memory can be shown; those are"),
        (lambda: MemoryFilm(xl, x, Words()), "a layer reads vectors, which no `tokenizer` makes"),
        (lambda: MemoryFilm(xl, x[0, 0]), "`inputs` should have 2 axes"),
        (lambda: MemoryFilm(xl, x.expand(2, -1, -1)), "`inputs` should be one sequence (n, dim)"),
        (lambda: MemoryFilm(xl, x[:, :1]), "`inputs` should have 2 to 512 tokens, got 1"),
        (lambda: MemoryFilm(xl, torch.zeros(513, DIM)), "2 to 512 tokens, got 513"),
        (lambda: MemoryFilm(xl, x[..., :9]), "dim"),
        (lambda: MemoryFilm(xl, x, tokens=["a"]), "`tokens` has 1 labels for 17 tokens"),
        (lambda: MemoryFilm(model(), torch.ones(2, 3).long()), "one sequence, got 2"),
        (lambda: MemoryFilm(model(), [1, 99]), "could not be run on"),
        (lambda: MemoryFilm(model(), "a b"), "`tokenizer`"),
        (lambda: MemoryFilm(xl, x, query=17), "`query` should be 0 to 16 here, got 17"),
        (lambda: MemoryFilm(xl, x, head=2), "`head` should be 0 to 1 here, got 2"),
        (lambda: MemoryFilm(xl, x, layer=1), "`layer` should be 0 to 0 here, got 1"),
        (lambda: MemoryFilm(xl, x, order="size"), "order"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
            make()
    padded = torch.tensor([[True] * 5 + [False] * 2])
    given = {"tokens": torch.zeros(1, 7, dtype=torch.int64), "padding": padded}
    with pytest.raises(ValueError, match="`inputs` has padding"):
        MemoryFilm(model(), given)
    with pytest.raises(ValueError, match="called none of its layers that have a memory"):
        MemoryFilm(Idle(), torch.ones(1, 5, DIM))
    one, state = film("transformer_xl", **XL), film("gru")
    with pytest.raises(ValueError, match="attends to a memory; it has no state"):
        one.holds()
    for ask in (state.shares, state.weights):
        with pytest.raises(ValueError, match="GRU, carries a state; it has no"):
            ask()


def test_a_film_that_a_notebook_could_not_hold_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("attnlab_widgets.memory_film.MOST_BYTES", 100)
    with pytest.raises(ValueError, match="more than the 100 that a saved notebook should hold"):
        film("transformer_xl", **XL)
    monkeypatch.undo()
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="300 channels is more than the 256"):
        MemoryFilm(attnlab.build("gru", dim=300, causal=True), torch.zeros(3, 300))


# The page


def moments() -> dict[str, Any]:
    """Layers made by hand, so that every machine has the same bytes, with what Python says."""
    made = np.random.default_rng(0)
    n, c, h = 11, 3, 2
    place = torch.full((4, n), LOST, dtype=torch.uint8)
    for at, row in enumerate(("sss........", "mmmsss.....", "ccmmmmsss..", "xccccmmmmss")):
        place[at] = torch.tensor([".smcx".index(sign) for sign in row])
    seen = (place[torch.arange(n) // c] != LOST) & torch.ones(n, n, dtype=torch.bool).tril()
    weights = torch.from_numpy(made.dirichlet(np.full(n, 0.5), size=(h, n))) * seen
    weights = weights / weights.sum(-1, keepdim=True)
    xl = card("transformer_xl")
    layers = [
        Attended(xl, c, "memory", "compressed memory", 1, weights.float(), place),
        Attended(xl, c, "memory", "", 1, weights[:1].float(), place),
        Carried(card("rwkv"), "mean", torch.from_numpy(made.normal(size=(1, n, 5))).float(),
                torch.tensor([0.01, 12.5, 103.4, 7.0, 3.0])),
        Carried(card("gru"), "state", torch.from_numpy(made.normal(size=(3, n, 4))).float()),
    ]  # fmt: skip
    told, data = _described(["", "", "", ""], layers)
    tokens, said = [*"abcdefghijk"], []
    for at, one in enumerate(layers):
        for query in (0, 2, 6, 7, 10):
            for head in (None, 0):
                chosen = {"query": query, "token": tokens[query], "head": head}
                if isinstance(one, Carried):
                    text = film_words.of_state(told[at], _holds(one)[0].tolist(), chosen)
                    said.append([at, query, None, text, []])
                    break
                shares = one.shares().double()
                shares = (shares.mean(0) if head is None else shares[head])[query].tolist()
                kept = one.zones[query // c, :query].tolist()
                text = film_words.of_attention(told[at], shares, kept, chosen)
                maps = one.weights.double()
                maps = (maps.mean(0) if head is None else maps[head])[query].tolist()
                said.append([at, query, head, text, maps])
    states = [one.states.flatten().tolist() if isinstance(one, Carried) else [] for one in layers]
    return {"_film": {"tokens": tokens, "layers": told}, "data": data, "said": said,
            "states": states}  # fmt: skip


def cases() -> dict[str, Any]:
    made = moments()
    return {**made, "data": b64encode(made["data"]).decode()}


def test_the_front_end_is_tested_on_these_cases() -> None:
    """The bytes are compared unpacked: another zlib packs them otherwise."""
    packed = stored("film.json")["data"]
    assert zlib.decompress(b64decode(packed)) == zlib.decompress(moments()["data"])
    assert_fresh("film.json", {**cases(), "data": packed})


def test_the_picture_shows_the_zones_and_the_moment() -> None:
    one = film("compressive_transformer", 18, **COMPRESSIVE)
    parts = one.still().parts
    hatched = [part["box"] for kind, part in parts if kind == "hatch"]
    masks = [part["masked"] for kind, part in parts if kind == "hatch"]
    assert len(hatched) == 2, "the lost tokens, and the masked cells of the map"
    later = np.arange(18) > np.array([[16], [17]])
    np.testing.assert_array_equal(masks[1], later | (np.arange(18) < 6))
    cell = (952 - 76 - 24) / 18
    assert hatched[0][0] == 76, "from the left edge on"
    assert hatched[0][2] == pytest.approx(6 * cell), "six lost tokens"
    (rows,) = (part["levels"] for kind, part in parts if kind == "map")
    assert rows.shape == (2, 18), "the last segment has two tokens"
    state = film("rwkv")
    (image,) = (part["levels"] for kind, part in state.still().parts if kind == "map")
    assert image.shape == (DIM, N)


if __name__ == "__main__":
    write("film.json", cases())
