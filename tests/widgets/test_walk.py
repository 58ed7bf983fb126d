"""Walk: every step is that of the model, a text is read or refused in a sentence, and letters that
are written come from the model's answer."""

import copy
import re
from base64 import b64encode
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.walk import Walk
from attnlab_widgets.walk.draws import drawn, uniform
from attnlab_widgets.walk.example import hostile
from attnlab_widgets.walk.forward import steps

from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.pretrained import load
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

SIZES = {"dim": 12, "layers": 3, "heads": 2, "max_len": 11}


def small(**options: Any) -> TinyTransformer:
    torch.manual_seed(0)
    model = TinyTransformer(5, **(SIZES | options))
    for parameter in model.parameters():  # norms and biases, too, are those of no identity
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def silenced(model: TinyTransformer, silent: list[Any]) -> TinyTransformer:
    """The model in float64, with what these heads give to the output matrix cut by hand."""
    cut = copy.deepcopy(model).double().eval()
    for layer, head in silent:
        heads = cut.decoder.blocks[layer].attention.heads  # type: ignore[union-attr]
        width = heads.value_dim
        heads.output.weight.data[:, head * width : (head + 1) * width] = 0
    return cut


@pytest.mark.parametrize(
    "options",
    [{}, {"tie": False}, {"positions": "sinusoidal"}, {"positions": "none", "hidden": 7},
     {"logit_scale": 0.3, "dropout": 0.5}, {"attention_options": {"bias": True, "head_dim": 5}}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("silent", [[], [[1, 0]], [[0, 1], [2, 0], [2, 1]]], ids=str)
def test_every_pass_is_that_of_the_model(options: Any, silent: list[Any]) -> None:
    model = small(**options)
    walk = Walk(model, "abcddecab", silent=silent)
    cut = silenced(model, silent)
    with torch.no_grad(), watch(cut) as seen:
        logits = cut(torch.tensor([walk.tokens()]))
    run = walk.run()
    assert torch.allclose(run["logits"], logits[0], rtol=1e-6, atol=1e-7)
    for layer, record in enumerate(seen):
        assert torch.allclose(run[f"{layer}.weight"], record.weights[0], rtol=1e-6, atol=1e-8)
        assert torch.allclose(run[f"{layer}.query"], record.queries[0], rtol=1e-6, atol=1e-7)
        for head in range(2):
            assert run[f"{layer}.gathered"][head].any() != ([layer, head] in silent)
    assert [*run] == [step.key for step in steps(3)], "in order"


def test_the_shipped_copier_is_sent_in_half_precision_without_loss() -> None:
    walk = Walk()
    assert walk._told["half"]
    assert len(walk._numbers) == 2 * 107_776
    assert not Walk(small())._told["half"]
    with torch.no_grad():
        logits = load("induction")[0].double()(torch.tensor([walk.tokens()]))[0]
    assert torch.allclose(walk.run()["logits"], logits, rtol=0, atol=1e-12)


def test_it_begins_where_a_head_copies() -> None:
    walk = Walk()
    assert walk.description() == (
        "Step 21 of 32, layer 1: weights. Softmax: the scores of each row become shares that sum "
        "to 1. Head 1.0: “y” (21) gives 1.00 of its weight to “r” (6)."
    )
    walk.silent = [[1, 0]]
    assert walk.description().endswith("It is silent: nothing that it gathers is passed on.")
    walk.step, walk.at = 31, 17
    assert re.search(r"After “n” \(17\): “c” 9\d\.\d %, “", walk.description())
    walk.step = 0
    assert "“n” (17): 64 numbers of length " in walk.description()


def test_letters_are_written_from_the_answer() -> None:
    walk = Walk(temperature=0)
    assert walk.write(10) == "rightables"
    assert walk.text == "uncopyrightables" * 2
    assert len(walk.write(99)) == 32, "it stops where the model has no positions"
    assert walk.write() == ""
    hot = [Walk(text="abc", temperature=2, top_k=64, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (each.write(12) for each in hot)
    assert first == again != other
    assert len(set(first)) > 4


def test_draws_follow_the_probabilities_of_the_best_few() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0, 3.0])
    chances = [uniform(seed, place) for seed in range(40) for place in range(50)]
    tokens = [drawn(logits, 0.5, 3, chance) for chance in chances]
    shares = (logits[[1, 3, 2]] / 0.5).softmax(-1)
    for token, share in zip((1, 3, 2), shares, strict=True):
        assert tokens.count(token) / 2000 == pytest.approx(float(share), abs=0.04)
    assert 0 not in tokens
    assert drawn(logits, 0, 4, 0.99) == 1, "the first of equal ones"
    assert len(set(chances)) == 2000
    assert sum(chances) / 2000 == pytest.approx(0.5, abs=0.03)


REFUSED = [
    ("", "Type at least one letter"),
    ("a b", "The model does not know U+0020. It knows the letters a to z"),
    ("über", "The model does not know “ü”."),
    ("a\u202e", "The model does not know U+202E."),
    ("a" * 65, "That is 65 tokens, and this model has positions for 64."),
    ("a" * 10_000, "That is 10,000 tokens"),
    ("<script>", "The model does not know “<”."),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_a_text_that_is_not_read_is_refused_in_a_sentence(text: str, said: str) -> None:
    walk = Walk()
    with pytest.raises(traitlets.TraitError, match=re.escape(said)):
        walk.text = text
    assert walk.text == "uncopyrightablesuncopy"
    with pytest.raises(traitlets.TraitError, match=re.escape(said)):
        Walk(text=text)


def test_a_text_is_read_by_the_longest_name_that_fits() -> None:
    walk = Walk(small(), "abba␣", names=["a", "b", "ab", "ba", "␣"])
    assert walk.tokens() == [2, 3, 4]
    walk.text = "b ab"
    assert walk.tokens() == [1, 4, 2], "a space is typed for its sign"
    assert "It knows 5 tokens: a, b, ab, ba, ␣." in walk._told["refusals"]["unknown"]


OTHERS = [
    ({"kind": "classifier", "classes": 2}, "which is of kind 'classifier'"),
    ({"attention": "longformer"}, "which has "),
    ({"positions": "rope"}, "whose attention is told positions by "),
    ({"join": "post_norm"}, "do not join the stream by pre-norm"),
    ({"join_options": {"norm": "rms_norm"}}, "do not join the stream by pre-norm with layer norms"),
    ({"feed": "gated"}, "are not two matrices with GELU"),
    ({"feed_options": {"curve": "relu"}}, "are not two matrices with GELU"),
    ({"depth": "reversible"}, "not one after another"),
    ({"embedding_rank": 3}, "not by a table"),
    ({"attention_options": {"scale": 1.0}}, "not divided by the root"),
    ({"max_len": 300}, "positions for 300 tokens, more than 256"),
    ({"dim": 512, "heads": 4}, "more than the 1,000,000 that a page holds"),
]


@pytest.mark.parametrize(("options", "said"), OTHERS, ids=lambda one: str(one)[:30])
def test_a_model_that_the_page_cannot_compute_is_refused(options: Any, said: str) -> None:
    model = TinyTransformer(5, **(SIZES | options))
    with pytest.raises(ValueError, match=f"the page cannot compute this model, .*{said}"):
        Walk(model, "abc")


def test_other_bad_arguments() -> None:
    big = TinyTransformer(70, **SIZES)
    wrong: Any = torch.nn.Linear(2, 2)
    three: Any = [3]
    for make, said in (
        (lambda: Walk(wrong), "`model` should be a TinyTransformer, got Linear"),
        (lambda: Walk(big, "abc"), "the model has 70 tokens, more than there are letters"),
        (lambda: Walk(small(), "abc", names="abcd"), "`names` should be a list"),
        (lambda: Walk(small(), "abc", names=["a", "b", "c", "d"]), "should be 5 different texts"),
        (lambda: Walk(small(), "abc", names=["a", "b", "c", "d", "d"]), "5 different texts"),
        (lambda: Walk(small(), "abc", names=["a", "b", "c", "d", ""]), "none of them empty"),
        (lambda: Walk(small(), "abc", step=48), "`step` should be 0 to 44 here, got 48"),
        (lambda: Walk(small(), "abc", at=11), "`at` should be from -1 to 10, got 11"),
        (lambda: Walk(small(), "abc", head=2), "`head` should be 0 to 1 here, got 2"),
        (lambda: Walk(small(), "abc", silent=[(3, 0)]), "this model has no head 3.0"),
        (lambda: Walk(small(), "abc", silent=three), "a head of silent` should be a list"),
        (lambda: Walk(small(), "abc", temperature=3), "should be from 0 to 2, got 3"),
        (lambda: Walk(small(), "abc", top_k=0), "`top_k` should be from 1 to 5, got 0"),
        (lambda: Walk(small(), "abc", seed=-1), "`seed` should be from 0 to 2147483647"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(said)):
            make()


def test_the_still_picture_follows_the_step() -> None:
    walk = Walk()
    weights = walk.still()
    assert "hatch" in [kind for kind, _ in weights.parts]
    assert "weight 0" in weights.svg("")
    pictures = set()
    for step in range(len(walk.steps)):
        walk.step = step
        pictures.add(walk.still().svg(""))
    assert len(pictures) == len(walk.steps)
    assert "blue: below 0" in Walk(step=0).still().svg("")


# The page


def cases() -> list[dict[str, Any]]:
    """What Python computes and says of a few models: the end of each step, sentences, letters."""
    words = ("<b>", "b", "\u202ec", "e e", "␣")
    shown = [
        Walk(small(), "abcddecab", silent=[[1, 0]]),
        Walk(small(tie=False, positions="sinusoidal"), "abca", silent=[[0, 0], [2, 1]]),
        Walk(small(logit_scale=0.3, positions="none"), "e", silent=[]),
        Walk(small(attention_options={"bias": True, "head_dim": 5}), "b␣<b>e e␣b", names=words),
        hostile(words),
    ]
    return [_case(walk) for walk in shown]


def _case(walk: Walk) -> dict[str, Any]:
    state = {"text": walk.text, "silent": walk.silent, "tokens": walk.tokens()}
    run = walk.run()
    ends = {key: [float(x) for x in values.flatten()[-3:]] for key, values in run.items()}
    said = []
    for step in range(len(walk.steps)):
        walk.step, walk.at, walk.head = step, step % len(walk.tokens()), step % 2
        said.append([step, walk.at, walk.head, walk.description()])
    for _, text in enumerate(one for one, _ in REFUSED):
        try:
            walk.network.read(text)
        except ValueError as error:
            state.setdefault("refused", []).append([text, str(error)])
    walk.temperature, walk.top_k, walk.seed = 1.3, 4, 7
    return state | {
        "_told": walk._told,
        "numbers": b64encode(walk._numbers).decode(),
        "ends": ends,
        "said": said,
        "sampling": {"temperature": 1.3, "top_k": 4, "seed": 7},
        "written": walk.write(6),
    }


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("walk.json", cases(), NEAR_FLOAT32)


if __name__ == "__main__":
    write("walk.json", cases())
