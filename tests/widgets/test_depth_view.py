"""DepthView: how far each token is from its final state, and where it stops."""

import math
import re
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.depth_view import DepthView
from attnlab_widgets.depth_view.picture import Scale

from attnlab.core.probe import record
from attnlab.lens.depths import passage
from attnlab.models.tiny import TinyTransformer
from tests.widgets.stored import assert_fresh, write

S, N, DIM = 5, 3, 2
WAY = torch.tensor([1.0, 0.5, 0.3, 0.05, 0.0])  # of the way that is left after each step
START = torch.tensor([[3.0, 4], [0, 5], [6, 8]])
END = torch.tensor([[6.0, 8], [0, 10], [3, 4]])
STATES = END + (START - END) * WAY[:, None, None]
LEFT = torch.tensor([5, 2, 3])


def view(**given: Any) -> DepthView:
    return DepthView([*"abc"], STATES, **given)


def test_distance_and_change_are_shares_of_the_length_of_the_state() -> None:
    found = passage(STATES, start=START)
    assert found.distance[0].tolist() == pytest.approx((WAY / 2).tolist())
    assert found.change[0].tolist() == pytest.approx(
        [0, 2.5 / 7.5, 1.0 / 8.5, 1.25 / 9.75, 0.25 / 10], abs=1e-6
    )
    assert math.isnan(passage(STATES).change[0, 0]), "the state before is not known"
    assert found.left.tolist() == [5, 5, 5]
    assert not found.early
    assert found.settled(0) == 4, "from 0.05 / 2 on"


def test_a_token_that_has_left_is_compared_with_the_state_with_which_it_left() -> None:
    found = passage(STATES, left=LEFT)
    assert found.distance[1, 1] == 0
    assert found.distance[1, 0].item() == pytest.approx(2.5 / 7.5)
    assert found.distance[1, 2:].isnan().all()
    assert found.change[2, 3:].isnan().all()
    assert found.running().tolist() == [3, 3, 2, 1, 1]
    assert found.share() == pytest.approx(10 / 15)
    assert found.early


def test_the_token_that_leaves_last_is_read_out() -> None:
    one = view(left=LEFT, what="layer", guesses=[[*"xyz"]] * 4 + [[*"wyz"]],
               probabilities=torch.full((S, N), 0.25))  # fmt: skip
    assert one.token == 0
    assert one.step == 4
    assert one.description() == (
        "3 tokens leave between layer 2 and 5 of 5: 67 % of the work of all 5 layers is done. "
        "Token 0 “a” leaves after layer 5 and is near its final state from layer 4 on; its answer, "
        "“w” with 0.25, is the same from layer 5 on."
    )
    one.order = "left"
    assert one.rows() == [1, 2, 0]
    all_stay = view()
    assert all_stay.token == 2, "all settle at once; this one came from farthest"
    assert all_stay.description() == (
        "All 3 tokens go through all 5 steps. Token 2 “c” is near its final state, within 10 %, "
        "from step 4 on."
    )


def test_a_solver_says_its_residual() -> None:
    one = view(residual=[1.5, 0.3, 0.02, 1e-3, 3.2e-5], what="iteration")
    assert one.description().startswith("In 5 iterations the residual falls from 1.50 to 3.2e−5.")


# A model

SMALL = {"dim": 8, "layers": 3, "heads": 2, "max_len": 32}
TOKENS = torch.randint(13, (11,), generator=torch.Generator().manual_seed(1))


def model(depth: str, kind: str = "language_model", **options: Any) -> TinyTransformer:
    torch.manual_seed(0)
    classes = {"classes": 3} if "classifier" in kind else {}
    return TinyTransformer(13, kind=kind, depth=depth, depth_options=options, **classes, **SMALL)


@pytest.mark.parametrize("depth", ["plain", "checkpointed", "shared", "layer_drop", "universal"])
def test_the_last_answer_is_that_of_the_model(depth: str) -> None:
    reader = model(depth).train()
    one = DepthView.of(reader, TOKENS)
    assert reader.training, "it is left as it was"
    assert all(not block._forward_hooks for block in reader.decoder.blocks)  # type: ignore[union-attr, operator]
    logits = reader.eval()(TOKENS[None])[0].softmax(-1)
    assert [row[-1] for row in one.found.guesses or ()] == [
        str(i) for i in logits.argmax(-1).tolist()
    ]
    torch.testing.assert_close(one.found.probabilities[:, -1].float(), logits.amax(-1).detach())  # type: ignore[index]
    assert one.found.distance.shape == (11, 3)
    assert not one.found.change.isnan().any(), "the state before the first layer is known"
    assert one.found.steps == ["1", "2", "3"]


def test_tokens_leave_where_act_halts_them() -> None:
    reader = model("universal", act=True)
    with torch.no_grad():
        reader.decoder.depth.unit.weight.normal_(std=2)  # type: ignore[union-attr]
    one = DepthView.of(reader, TOKENS)
    with record() as notes:
        reader.eval()(TOKENS[None])
    halted = notes.last("halted")[0]
    assert torch.equal(one.found.left, halted)
    assert one.found.early, "some leave early, some stay"
    assert int(halted.max()) > int(halted.min())
    assert "leaves after step" in one.description()


def test_tokens_leave_by_the_exits_of_a_depth_adaptive_model() -> None:
    reader = model("depth_adaptive").eval()
    depth = reader.decoder.depth  # type: ignore[union-attr]
    with torch.no_grad():
        depth.scores.weight.normal_(std=2)
    depth.trained.fill_(True)
    one = DepthView.of(reader, TOKENS)
    with record() as notes:
        logits = reader(TOKENS[None])[0]
    assert torch.equal(one.found.left, notes.last("halted")[0])
    assert one.found.early
    assert one._depth["what"] == "layer"
    at = torch.arange(11), one.found.left - 1
    sure = logits.softmax(-1).amax(-1).detach()
    torch.testing.assert_close(one.found.probabilities[at].float(), sure)  # type: ignore[index]


def test_a_solver_of_a_model_shows_its_residual() -> None:
    reader = model("equilibrium")
    one = DepthView.of(reader, TOKENS)
    residual = one._depth["residual"]
    assert len(residual) == len(one.found.steps) > 2
    assert residual[-1] <= reader.decoder.depth.options.tolerance < residual[0]  # type: ignore[union-attr]
    assert one.colour == "change"
    assert one.found.change[:, 0].isnan().all(), "the solver begins elsewhere"
    assert one.description().startswith(f"In {len(residual)} steps the residual falls from ")


def test_other_kinds_of_models_have_the_answers_that_they_can_give() -> None:
    labels = DepthView.of(model("plain", "token_classifier"), TOKENS)
    assert {guess for row in labels.found.guesses or [["-"]] for guess in row} <= {*"012"}
    assert DepthView.of(model("plain", "classifier"), TOKENS).found.guesses is None
    both = model("plain", "encoder_decoder")
    two = DepthView.of(both, {"source": TOKENS[None], "tokens": TOKENS[None, :5]})
    assert len(two.tokens) == 5, "the decoder's"


def test_what_has_no_state_after_each_layer_is_refused() -> None:
    for make, words in (
        (lambda: DepthView.of(model("reversible"), TOKENS), "Reversible adds what attention"),
        (lambda: DepthView.of(torch.nn.Linear(2, 2), TOKENS), "should be a TinyTransformer"),
        (lambda: DepthView.of(model("plain"), TOKENS.expand(2, -1)), "one sequence, got 2"),
        (lambda: DepthView.of(model("plain"), [99]), "could not be run on"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            make()


def test_the_picture_hatches_what_is_not_computed_and_veils_what_comes_later() -> None:
    one = view(left=LEFT)
    parts = one.still().parts
    hatched = [part["box"] for kind, part in parts if kind == "hatch"]
    assert len(hatched) == 2, "the two that leave early"
    boxes = sum(kind == "box" for kind, _ in parts)
    one.step = 1
    assert boxes - sum(kind == "box" for kind, _ in one.still().parts) == 3 + 1, (
        "cells of steps 2 … 4"
    )
    assert len(view(residual=[5, 4, 3, 2, 1]).still().parts) > len(view().still().parts)


def test_colours_are_logarithmic_where_values_differ_much() -> None:
    far = Scale(np.array([1e-3, 1e-1, np.nan, 0]), "change")
    assert far.log
    assert far.share(1e-2) == pytest.approx(0.5)
    assert far.share(0) == 0
    near = Scale(np.array([0.25, 1.0]), "distance")
    assert not near.log
    assert near.share(0.25) == 0.5
    assert Scale(np.array([0.2, 0.4]), "probability").share(0.4) == 0.4


def test_what_cannot_be_shown_is_refused_in_a_sentence() -> None:
    both = {"guesses": [[*"xyz"]] * S, "probabilities": torch.full((S, N), 0.5)}
    for make, words in (
        (lambda: DepthView(None, "abc"), "`states`"),
        (lambda: DepthView(None, STATES[0]), "`states` should have 3 axes (s, n, dim)"),
        (lambda: DepthView(None, STATES * torch.nan), "NaN or infinite"),
        (lambda: DepthView([*"ab"], STATES), "`tokens` has 2 labels for 3 tokens"),
        (lambda: view(start=START[:2]), "`start` should have the shape (3, 2), got (2, 2)"),
        (lambda: view(left=[1, 2, 6]), "`left` should hold whole numbers from 1 to 5"),
        (lambda: view(left=[0, 2, 3]), "`left` should hold whole numbers from 1 to 5"),
        (lambda: view(left=[1.5, 2, 3]), "`left` should hold whole numbers from 1 to 5"),
        (lambda: view(guesses=[[*"xyz"]] * S), "`guesses` and `probabilities` belong together"),
        (lambda: view(**both | {"guesses": [[*"xy"]] * S}), "`guesses` should be 5 lists of 3"),
        (lambda: view(**both | {"probabilities": torch.full((S, N), 2)}), "from 0 to 1"),
        (lambda: view(residual=[1, 2]), "`residual` should have the shape (5,), got (2,)"),
        (lambda: view(residual=[1, 1, 1, 1, -1]), "`residual` should hold numbers of at least 0"),
        (lambda: view(steps=["a"]), "`steps` should name 5 steps, got 1"),
        (lambda: view(what=3), "`what` should be text, got 3"),
        (lambda: view(colour="probability"), "for no `probabilities` are given"),
        (lambda: view(colour="red"), "colour"),
        (lambda: view(order="size"), "order"),
        (lambda: view(token=3), "`token` should be 0 to 2 here, got 3"),
        (lambda: DepthView(None, torch.zeros(129, 2, 1)), "of 129 steps and 2 tokens; at most"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(words)):
            make()
    one = view(**both, colour="probability")
    with pytest.raises(traitlets.TraitError, match="`step` should be 0 to 4 here, got 5"):
        one.step = 5


# The page


def cases() -> list[dict[str, Any]]:
    """What Python says of tokens that leave early, of all that stay, and of a solver."""
    made = np.random.default_rng(0)
    guesses = [[str(int(made.integers(2))) for _ in range(N)] for _ in range(S)]
    shown = [
        view(start=START),
        view(
            left=LEFT, what="layer", guesses=guesses, probabilities=np.round(made.random((S, N)), 2)
        ),
        view(left=[2, 2, 2], steps=[*"vwxyz"]),
        view(residual=[1.5, 0.3, 0.02, 1e-3, 3.25e-5], what="iteration"),
        DepthView(None, STATES[:1], what="pass"),
    ]
    return [
        {
            "_depth": one._depth, "data": b64encode(one._data).decode(), "said": _said(one),
            "settled": [one.found.settled(i) for i in range(N)],
            "running": one.found.running().tolist(), "rows": _rows(one), "shares": _shares(one),
        }
        for one in shown
    ]  # fmt: skip


def _said(one: DepthView) -> list[str]:
    found = []
    for token in range(N):
        one.token = token
        found.append(one.description())
    return found


def _rows(one: DepthView) -> list[int]:
    one.order = "left"
    return one.rows()


def _shares(one: DepthView) -> list[float]:
    """Where the distances are on the colours; 2 where nothing is computed."""
    one.colour = "distance"
    values = one.values().numpy()
    scale = Scale(values, "distance")
    return [2.0 if math.isnan(value) else scale.share(value) for value in values.ravel()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("depth.json", cases(), near=1e-6)


if __name__ == "__main__":
    write("depth.json", cases())
