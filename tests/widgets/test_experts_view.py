"""ExpertsView: who is dropped follows from the choices, their order and the capacity."""

import re
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.experts_view import ExpertsView
from PIL import Image

from attnlab.core.modes import mode
from attnlab.core.probe import record
from attnlab.lens.experts import NONE, Routed, Use
from attnlab.models.tiny import TinyTransformer
from tests.widgets.stored import assert_fresh, write

N, K, E = 7, 2, 3
CHOSEN = torch.tensor([[1, 0], [1, 2], [0, 1], [1, 2], [2, 1], [1, NONE], [NONE, NONE]])
GATES = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.5, 0.5], [0.9, 0.1], [0.8, 0.2], [1, 0], [0, 0]])
ROUTER = torch.tensor(
    [[0.3, 0.5, 0.2], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2], [0.05, 0.85, 0.1], [0.1, 0.2, 0.7],
     [0, 1, 0], [0, 0, 0]]
)  # fmt: skip
WORDS = [*"abcdefg"]


def view(**given: Any) -> ExpertsView:
    return ExpertsView(WORDS, CHOSEN, GATES, ROUTER, **({"capacity": 3} | given))


# What follows from the choices


def by_hand(chosen: torch.Tensor, capacity: int, experts: int) -> torch.Tensor:
    """One choice after the other: all first choices, then all second ones."""
    room, taken = [capacity] * experts, chosen.clone()
    for c in range(chosen.shape[1]):
        for i in range(len(chosen)):
            expert = int(chosen[i, c])
            if expert == NONE:
                continue
            if room[expert]:
                room[expert] -= 1
            else:
                taken[i, c] = NONE
    return taken


def test_first_choices_are_placed_before_any_second() -> None:
    assert view().taken().tolist() == [
        [1, 0], [1, 2], [0, NONE], [1, 2], [2, NONE], [NONE, NONE], [NONE, NONE],
    ]  # fmt: skip
    assert view().load().tolist() == [2, 3, 3]


@pytest.mark.parametrize("seed", range(5))
def test_any_choices_at_any_capacity_are_those_placed_by_hand(seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    router = torch.randn(23, 5, generator=made).softmax(-1)
    gates, chosen = router.topk(3)
    chosen[torch.rand(chosen.shape, generator=made) < 0.1] = NONE
    one = ExpertsView(None, chosen, gates, router)
    assert one.capacity == 23, "no limit unless given"
    assert torch.equal(one.taken(), chosen)
    for capacity in (1, 4, 11, 23):
        one.capacity = capacity
        assert torch.equal(one.taken(), by_hand(chosen, capacity, 5))


def test_choices_are_placed_one_after_the_other() -> None:
    one = view()
    assert one.placed == 11, "eleven choices"
    one.placed = 3
    assert one.taken()[:, 0].tolist() == [1, 1, 0, NONE, NONE, NONE, NONE]
    assert one.load().tolist() == [1, 2, 0]
    assert "So far 3 choices are placed." in one.description()
    one.token = 4
    assert one.description().endswith("Token 4 “e” is not placed yet.")


def test_the_balance_is_one_for_even_use_and_the_number_of_experts_for_a_collapse() -> None:
    even = Routed(
        torch.arange(12)[:, None] % 4, torch.ones(12, 1), torch.full((12, 4), 0.25), 4, 12
    )
    assert even.balance() == pytest.approx(1)
    collapsed = torch.eye(4)[[2] * 12]
    gone = Routed(torch.full((12, 1), 2), torch.ones(12, 1), collapsed, 4, 12)
    assert gone.balance() == pytest.approx(4)
    own = view().routed
    assert own.shares().tolist() == pytest.approx([1 / 6, 4 / 6, 1 / 6]), "padding does not count"
    assert own.mean_router().tolist() == pytest.approx([0.95 / 6, 3.55 / 6, 1.5 / 6])  # type: ignore[union-attr]


def test_the_first_token_that_no_expert_computes_is_read_out() -> None:
    one = view()
    assert one.token == 5
    assert one.description() == (
        "Each of 3 experts has room for 3 tokens: 3 of 11 choices are dropped. Expert 1 is chosen "
        "most often, 6 times, expert 0 least, 2 times. Token 5 “f” is dropped: expert 1 (1.00) was "
        "full, so it goes on in the stream as it was."
    )
    one.token = 2
    assert one.description().endswith(
        "Token 2 “c” goes to expert 0 (0.50); expert 1 (0.50) was full."
    )
    one.token = 6
    assert one.description().endswith("Token 6 “g” chooses no expert.")
    assert ExpertsView(WORDS, CHOSEN, GATES, capacity=4).token == 2, "the first that loses a choice"
    assert ExpertsView(WORDS, CHOSEN, GATES).token == 0, "the first of the fullest expert"


def test_layers_have_choices_of_their_own() -> None:
    second = CHOSEN.flip(0)
    second[2, 1] = NONE
    chosen = torch.stack((CHOSEN, second))
    one = ExpertsView(WORDS, chosen, capacity=[3, 2], titles=["low", "high"])
    one.layer = 1
    assert one.routed.title == "high"
    assert one.routed.capacity == 2
    assert one.placed == 10, "all of this layer"
    assert torch.equal(one.taken(), by_hand(second, one.capacity, 3))
    one.layer = 0
    assert one.placed == 11, "wholly placed it stays"
    one.placed = 4
    one.layer = 1
    assert one.placed == 4


def test_experts_that_choose_take_the_tokens_with_the_highest_gates() -> None:
    gates = torch.tensor([[0.9, 0.1], [0.2, 0.3], [0.4, 0.5], [0.6, 0.2], [0.1, 0.1]])
    chosen = torch.tensor([[0, NONE], [0, 1], [0, 1], [0, 1], [NONE, NONE]])
    one = ExpertsView(None, chosen, gates, choosing="experts", capacity=4)
    assert one.routed.queue() == [(0, 0), (2, 1), (3, 0), (1, 1), (2, 0), (3, 1), (1, 0)]
    assert one.token == 4, "which nobody takes"
    assert one.description() == (
        "Each of 2 experts takes the 4 tokens that it scores highest: 1 of 5 tokens is taken by no "
        "expert. Token 4 “4” is taken by no expert, so it goes on in the stream as it was."
    )
    one.capacity, one.token = 2, 3
    assert one.taken().tolist() == [[0, NONE], [NONE, 1], [NONE, 1], [0, NONE], [NONE, NONE]]
    assert one.description().endswith("Token 3 “3” is taken by expert 0 (0.60).")
    assert one.routed.balance() is None


# A model


SMALL = {"dim": 8, "layers": 2, "heads": 2, "max_len": 32}
TOKENS = torch.randint(13, (19,), generator=torch.Generator().manual_seed(1))


def model(feed: str, kind: str = "token_classifier", **options: Any) -> TinyTransformer:
    torch.manual_seed(0)
    classes = {"classes": 3} if kind == "token_classifier" else {}
    return TinyTransformer(13, kind=kind, feed=feed, feed_options=options, **classes, **SMALL)


@pytest.mark.parametrize(
    ("feed", "options"),
    [
        ("switch", {"experts": 3, "evaluation_capacity": 1.0}),
        ("gshard", {"experts": 5}),
        ("expert_choice", {"experts": 3}),
        ("modality_experts", {"split": (7,)}),
    ],
)
def test_layers_of_a_model_are_shown_as_they_computed(feed: str, options: Any) -> None:
    reader = model(feed, **options).train()
    one = ExpertsView.of(reader, TOKENS)
    assert reader.training, "it is left as it was"
    with mode(reader, training=False), record() as notes:
        reader(TOKENS[None])
    assert len(one.layers) == 2
    for at in (0, 1):
        one.layer, one.capacity = at, int(notes["capacity"][at])
        assert torch.equal(one.taken(), notes["experts"][at][0])
        torch.testing.assert_close(one.routed.router, notes["router"][at][0])
    assert one.tokens == [str(i) for i in TOKENS.tolist()]
    assert one.routed.title == "layer 1"


def test_a_model_without_experts_and_a_batch_are_refused() -> None:
    for make, words in (
        (lambda: ExpertsView.of(model("mlp"), TOKENS), "TinyTransformer has no mixture of experts"),
        (lambda: ExpertsView.of(model("switch"), TOKENS.expand(2, -1)), "one sequence, got 2"),
        (lambda: ExpertsView.of("gpt2", TOKENS), "`model` should be an nn.Module, got str"),
        (lambda: Use(model("mlp"), TOKENS[None]).add(0), "has no mixture of experts"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            make()


def test_the_use_of_experts_is_counted_while_a_model_is_trained() -> None:
    reader = model("switch", experts=3)
    use = Use(reader, TOKENS.view(1, -1).expand(2, -1))
    use.add(0)
    with torch.no_grad():
        for block in reader.encoder.blocks:  # type: ignore[union-attr, operator]
            block.feed_forward.router.weight.zero_()  # all alike: the first expert has every token
    use.add(7)
    history = use.history()
    assert history["steps"] == [0, 7]
    assert history["shares"].shape == (2, 2, 3)
    assert history["shares"][:, 1].tolist() == [[1, 0, 0]] * 2
    torch.testing.assert_close(history["balance"][:, 1], torch.ones(2), msg="P is even")
    one = ExpertsView.of(reader, TOKENS, history=history, layer=1)
    assert one._experts["history"]["steps"] == [0, 7]


# The picture


def test_the_picture_has_a_square_for_each_choice_and_hatches_the_dropped() -> None:
    parts = view().still().parts
    hatched = [part for kind, part in parts if kind == "hatch"]
    assert len(hatched) == 2 * 3 + 1, (
        "three dropped choices, in text and bars; one without a choice"
    )
    words = [part["content"] for kind, part in parts if kind == "text"]
    assert {"room for 3", "expert 2", "3, 3 dropped", *WORDS} <= set(words)


def test_patches_of_an_image_are_drawn_over_it() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 12, 3), np.uint8))
    chosen = torch.arange(24)[:, None] % 3
    one = ExpertsView(None, chosen, image=image, grid=(4, 6), capacity=5)
    assert one.tokens[7] == "1, 1"
    assert [kind for kind, _ in one.still().parts].count("map") == 1
    assert "data:image/png" in one._experts["image"]["url"]


# What cannot be shown


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    three, two = torch.full((N, K), 2), torch.full((N, 2), 0.5)
    for make, words in (
        (lambda: ExpertsView(WORDS, "abc"), "`chosen`"),
        (lambda: ExpertsView(WORDS, CHOSEN.float() + 0.5), "numbers of experts from 0 on"),
        (lambda: ExpertsView(WORDS, three), "an expert at most once for each token"),
        (lambda: ExpertsView(WORDS[:3], CHOSEN), "`tokens` has 3 labels for 7 tokens"),
        (lambda: ExpertsView(WORDS, CHOSEN, GATES[:, :1]), "should have the shape of `chosen`"),
        (lambda: ExpertsView(WORDS, CHOSEN, GATES, ROUTER[:5]), "of 7 tokens as `chosen`, got 5"),
        (lambda: ExpertsView(WORDS, CHOSEN, GATES, ROUTER * 2), "rows that sum to 1"),
        (lambda: ExpertsView(WORDS, CHOSEN, None, two), "holds expert 2, but the experts are 0 to"),
        (lambda: view(count=5), "`router` is of 3 experts, but `count` is 5"),
        (lambda: view(capacity=0), "`capacity` should be at least 1, got 0"),
        (lambda: view(capacity=[1, 2]), "`capacity` should be one number or 1, got 2"),
        (lambda: view(capacity=1.5), "`capacity` should be a whole number, got 1.5"),
        (lambda: view(experts=CHOSEN), "differs at 3 tokens from what a capacity of 3 leaves"),
        (lambda: view(history={"steps": [0, 1]}), '`history` should have "shares"'),
        (lambda: view(history={"shares": torch.ones(4, 2)}), "of 2 to 400 steps and 3 experts"),
        (lambda: view(history={"shares": torch.ones(2, 3), "steps": [1, 1]}), "2 growing numbers"),
        (lambda: view(choosing="both"), "choosing"),
        (lambda: view(titles=["a", "b"]), "`titles` should name 1 layers, got 2"),
        (lambda: view(grid=(2, 2)), "give the `image`, too"),
        (lambda: view(image=np.ones((8, 8))), "`image` cannot be cut into 7 patches"),
        (lambda: view(token=7), "`token` should be 0 to 6 here, got 7"),
        (lambda: view(layer=1), "`layer` should be 0 to 0 here, got 1"),
        (lambda: ExpertsView(None, torch.zeros(513, 1)), "513 tokens; at most 512"),
        (lambda: ExpertsView(None, torch.zeros(5, 1), count=65), "65 experts are more than the 64"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
            make()
    one = view(experts=view().taken())
    for name, value, words in (
        ("capacity", 0, "`capacity` should be 1 to 7 here, got 0"),
        ("placed", 12, "`placed` should be 0 to 11 here, got 12"),
    ):
        with pytest.raises(traitlets.TraitError, match=words):
            setattr(one, name, value)


# The page


def cases() -> dict[str, Any]:
    """What Python says of a few layers, at several capacities and moments."""
    made = np.random.default_rng(0)
    layers = np.stack([CHOSEN.numpy(), np.argsort(made.normal(size=(N, 4)))[:, :K]])
    one = ExpertsView(WORDS, layers, np.round(made.random((2, N, K)), 2), count=4)
    said = []
    for layer in range(2):
        one.layer = layer
        for capacity in (1, 2, 3, 7):
            for token in range(N):
                for placed in (3, len(one.routed.queue())):
                    one.capacity, one.token, one.placed = capacity, token, placed
                    state = {"layer": layer, "capacity": capacity, "token": token, "placed": placed}
                    said.append([state, one.description(), one.taken().tolist()])
    alone, gates = view(), np.round(made.random((N, 3)), 1)
    chosen = np.where(gates > 0.4, np.arange(3), NONE)
    choosing = ExpertsView(WORDS, chosen, gates, choosing="experts")
    taken = []
    for capacity, token, placed in ((7, 0, 2), (2, 1, 9), (1, 2, 9), (2, 5, 9), (3, 6, 9)):
        state = {"layer": 0, "capacity": capacity, "token": token}
        state["placed"] = min(placed, len(choosing.routed.queue()))
        choosing.capacity, choosing.token, choosing.placed = capacity, token, state["placed"]
        taken.append([state, choosing.description(), choosing.taken().tolist()])
    return {
        "choosing": {
            "_experts": choosing._experts, "data": b64encode(choosing._data).decode(),
            "said": taken,
        },
        "several": {"_experts": one._experts, "data": b64encode(one._data).decode(), "said": said},
        "alone": {
            "_experts": alone._experts, "data": b64encode(alone._data).decode(),
            "shares": alone.routed.shares().tolist(), "balance": alone.routed.balance(),
            "means": alone.routed.mean_router().tolist(),  # type: ignore[union-attr]
        },
    }  # fmt: skip


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("experts.json", cases(), near=1e-6)


if __name__ == "__main__":
    write("experts.json", cases())
