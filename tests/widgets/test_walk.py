"""Walk: every step is that of the model, a text is read or refused in a sentence, and letters that
are written come from the model's answer."""

import copy
import re
from base64 import b64encode
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.draws import drawn, uniform
from attnlab_widgets.walk import Walk, words
from attnlab_widgets.walk.example import hostile

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
    assert [*run] == [step.key for step in walk.steps], "in order"


def test_the_shipped_copier_is_sent_in_half_precision_without_loss() -> None:
    walk = Walk()
    assert walk._told["half"]
    assert len(walk._numbers) == 2 * 107_776
    assert not Walk(small())._told["half"]
    with torch.no_grad():
        logits = load("induction")[0].double()(torch.tensor([walk.tokens()]))[0]
    assert torch.allclose(walk.run()["logits"], logits, rtol=0, atol=1e-12)


def test_a_text_is_as_long_as_a_page_computes_at_once() -> None:
    big = TinyTransformer(64, dim=128, layers=4, heads=4, max_len=200)
    walk = Walk(big, "abc")
    assert walk.network.longest == walk._told["maxLen"] == 72
    with pytest.raises(traitlets.TraitError, match="That is 73 tokens, and the page computes at "):
        walk.text = "a" * 73
    walk.text = "a" * 71
    assert len(walk.write(5)) == 1
    assert Walk().network.longest == 64


def test_names_may_hold_braces() -> None:
    walk = Walk(small(), "{{a}", names=["{", "{a}", "{}", "b", "c"])
    assert walk.tokens() == [0, 1]
    with pytest.raises(traitlets.TraitError, match=re.escape("know “x”. It knows 5 tokens: {, {a")):
        walk.text = "x"


def test_a_token_that_would_join_the_text_is_not_written() -> None:
    names, ended = ["a", "b", "ab", "abc", "c"], set()
    for seed in range(30):
        walk = Walk(small(), "ac", names=names, seed=seed, temperature=2)
        added = walk.write(9)
        assert walk.text == "ac" + added
        ended.add(len(walk.tokens()))
        walk.network.read(walk.text)
    assert min(ended) < 11 == max(ended)


def test_every_sentence_is_true_of_the_model() -> None:
    def says(key: str, **options: Any) -> str:
        return next(step.says for step in Walk(small(**options), "abc").steps if step.key == key)

    for key in ("0.norm", "0.norm2", "norm"):
        assert says(key).endswith("brought to mean 0 and variance 1, then scaled and shifted.")
    assert says("position", positions="none") == "This model adds no vectors of places: zeros."
    assert says("logits").startswith("Times the vector of every letter: ")
    assert says("logits", tie=False).startswith("Times a matrix with a row for every letter: ")
    assert "letter and 0.3: a score" in says("logits", logit_scale=0.3)
    assert says("0.hidden").startswith("A wider layer, ")
    assert says("0.hidden", hidden=7).startswith("A narrower layer, ")
    assert says("0.hidden", hidden=12).startswith("A layer as wide as the stream, ")
    names = [step.name for step in Walk(small(), "abc").steps if step.part == "layer 0"]
    assert len(set(names)) == len(names)


def test_only_of_the_copier_it_is_said_what_it_was_trained_for() -> None:
    told = Walk()._told
    assert "trained to continue what repeats" in told["about"]
    assert "silence head 1.0" in told["try"]
    other = Walk(small(), "abc")._told
    assert other["about"].startswith(
        "A language model of 3 layers with 2 heads each, vectors of 12"
    )
    assert other["try"] == ""


def test_it_begins_where_a_head_copies() -> None:
    walk = Walk()
    assert walk.description() == (
        "Step 21 of 32, layer 1: weights. Softmax: the scores of each row become shares that sum "
        "to 1. Head 1.0: “y” (21) gives 1.00 of its weight to “r” (6)."
    )
    walk.silent = [[1, 0]]
    assert walk.description().endswith("It is silent: nothing that it gathers is passed on.")
    walk.step = next(at for at, step in enumerate(walk.steps) if step.key == "1.gathered")
    assert walk.description().endswith(
        "32 numbers, all zeros. It is silent: what it gathers is replaced by zeros."
    )
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
        (lambda: Walk(small(), "abc", top_k=10**9), "should be from 1 to 5, got 1000000000"),
        (lambda: Walk(small(), "abc", top_k=three), "'top_k' trait of a Walk instance expected"),
        (lambda: Walk(small(), "abc", seed=-1), "`seed` should be from 0 to 2147483647"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=re.escape(said)):
            make()


def test_the_still_picture_follows_the_step() -> None:
    walk = Walk()
    weights = walk.still()
    assert "hatch" in [kind for kind, _ in weights.parts]
    assert "weight 0" in weights.svg("")
    answer = Walk(step=31).still().svg("")
    assert "probability 0" in answer
    assert "only key" not in answer
    pictures = set()
    for step in range(len(walk.steps)):
        walk.step = step
        pictures.add(walk.still().svg(""))
    assert len(pictures) == len(walk.steps)
    assert "blue: below 0" in Walk(step=0).still().svg("")


# The page

ROUNDED = (0.125, -0.125, 0.375, -0.001, 0.0, -0.0, 1.005, 0.00125, 0.99949, 1e-9, -7.5, 2.675)


def cases() -> list[dict[str, Any]]:
    """What Python computes and says of a few models: the end of each step, sentences, letters."""
    names = ("<b>", "b", "\u202ec", "e e", "␣")
    shown = [
        Walk(small(), "abcddecab", silent=[[1, 0]]),
        Walk(small(tie=False, positions="sinusoidal"), "abca", silent=[[0, 0], [2, 1]]),
        Walk(small(logit_scale=0.3, positions="none"), "e", silent=[]),
        Walk(small(attention_options={"bias": True, "head_dim": 5}), "b␣<b>e e␣b", names=names),
        hostile((*names[:3], "{}", "{a}", "{")),
        Walk(small(), "ac", names=["a", "b", "ab", "abc", "c"], seed=3),
    ]
    return [_case(walk) for walk in shown]


def _case(walk: Walk) -> dict[str, Any]:
    state = {"text": walk.text, "silent": walk.silent, "tokens": walk.tokens()}
    run = walk.run()
    finite = {key: values[values.isfinite()] for key, values in run.items()}
    ends = {key: [float(x) for x in values[-3:]] for key, values in finite.items()}
    sums = {key: [float(x.sum()), float(x.square().sum())] for key, x in finite.items()}
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
        "sums": sums,
        "rounded": [[x, words.fixed(x), words.percent(x)] for x in ROUNDED],
        "said": said,
        "sampling": {"temperature": 1.3, "top_k": 4, "seed": 7},
        "written": walk.write(6),
    }


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("walk.json", cases(), NEAR_FLOAT32)


if __name__ == "__main__":
    write("walk.json", cases())
