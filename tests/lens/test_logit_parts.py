"""The parts of a logit: they sum to it, and in a planted model they name the head that answers."""

from itertools import product

import pytest
import torch

import attnlab
from attnlab.core.modes import mode
from attnlab.lens.logit_lens import logit_lens
from attnlab.lens.logit_parts import Part, logit_parts
from attnlab.lens.stream import followed
from attnlab.models.tiny import TinyTransformer

TEXT = torch.tensor([[0, 1, 2, 3, 4, 1], [0, 3, 5, 6, 2, 3]])
KINDS = ("language_model", "classifier", "token_classifier", "encoder_decoder")
JOINS = ("pre_norm", "post_norm", "deep_norm", "rezero", "layer_scale", "sub_ln", "drop_path")
NORMS = ("layer_norm", "rms_norm", "no_norm")


def shaken(kind="language_model", **options):
    """A small model whose biases and factors are not 0 or 1."""
    more = {"classes": 5} if kind in ("classifier", "token_classifier") else {}
    model = TinyTransformer(
        11, dim=12, layers=3, heads=2, kind=kind, max_len=16, hidden=7,
        **{"attention_options": {"bias": True}, **more, **options},
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def arguments(kind):
    tokens = torch.randint(11, (3, 7))
    padding = torch.ones(3, 7, dtype=torch.bool)
    padding[1, 4:] = False
    more = {"source": torch.randint(11, (3, 5))} if kind == "encoder_decoder" else {}
    return tokens, padding, more


def away(found, padding):
    """How far the sum lies from the logit, beside the largest part."""
    error = (found.values.sum(0) - found.logits.double()).abs()
    if error.shape == padding.shape:
        error = error[padding]
    return float(error.max() / found.values.abs().max())


# ---- the sum


@pytest.mark.parametrize(("join", "kind"), [*product(JOINS, KINDS)])
def test_the_parts_sum_to_the_logit(join: str, kind: str) -> None:
    for norm in NORMS if join != "rezero" else ("layer_norm",):
        own = {} if join == "rezero" else {"join_options": {"norm": norm}}
        model = shaken(kind, join=join, dropout=0.5, **own)  # in training mode
        tokens, padding, more = arguments(kind)
        found = logit_parts(model, tokens, 3, others=1, padding=padding, **more)
        assert away(found, padding) < 1e-5, norm
        for others in (None, 1, "mean"):
            exact = logit_parts(model.double(), tokens, 3, others=others, padding=padding, **more)
            assert away(exact, padding) < 1e-12, (norm, others)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "rope"},
        {"positions": "sinusoidal"},
        {"positions": "complex"},
        {"embedding_rank": 5},
        {"tie": False, "logit_scale": 0.3},
        {"depth": "shared"},
        {"depth": "checkpointed"},
        {"attention": "linear", "attention_options": None},
        {"attention": "gated_attention", "attention_options": None},
        {"attention": "hyena", "attention_options": None},
        {"feed": "switch"},
    ],
    ids=str,
)
def test_the_parts_of_other_models_sum_too(options) -> None:
    model = shaken(**options).double()
    tokens, padding, _ = arguments("language_model")
    assert away(logit_parts(model, tokens, tokens.roll(-1, 1), others="mean"), padding) < 1e-12


def test_the_logits_are_those_of_the_model() -> None:
    model = shaken("encoder_decoder").eval()
    tokens, padding, more = arguments("encoder_decoder")
    answers = torch.randint(11, tokens.shape)
    logits = model(tokens, padding, **more)
    own = logits.gather(-1, answers[..., None])[..., 0]
    plain = logit_parts(model, tokens, answers, padding=padding, **more)
    torch.testing.assert_close(plain.logits, own)
    beside = logit_parts(model, tokens, answers, others=4, padding=padding, **more)
    torch.testing.assert_close(beside.logits, own - logits[..., 4])
    mean = logit_parts(model, tokens, answers, others="mean", padding=padding, **more)
    torch.testing.assert_close(mean.logits, own - logits.mean(-1))
    assert {part.what for part in plain.parts} >= {"attention", "cross", "feed_forward", "bias"}


def test_a_head_that_is_silenced_takes_its_part_with_it() -> None:
    """Of the last layer, without norms: nothing later reads what the head has written."""
    model = shaken(join_options={"norm": "no_norm"}).double().eval()
    last = model.decoder.blocks[-1]
    with torch.no_grad():
        last.feed_forward.contract.weight.zero_()
    tokens, _, _ = arguments("language_model")
    found = logit_parts(model, tokens, 3)
    with torch.no_grad():
        last.attention.heads.output.weight[:, 6:] = 0  # the second head
        without = model(tokens)[..., 3]
    torch.testing.assert_close(found.logits - found.of("attention", 2, 1), without)


# ---- a planted model


def test_the_head_that_writes_the_answer_is_named(planted: TinyTransformer) -> None:
    found = logit_parts(planted, TEXT, torch.tensor([2, 5])[:, None].expand(2, 6), others=6)
    at_end = {
        str(part): value for part, value in zip(found.parts, found.values[:, 0, -1], strict=True)
    }
    assert at_end["head 1.1"] == pytest.approx(5.0, abs=1e-5)
    assert at_end["head 1.0"] == pytest.approx(0.5 / 6, abs=1e-5)
    others = {name: value for name, value in at_end.items() if not name.startswith("head 1.")}
    assert set(others) >= {"embedding", "positions", "head 0.0", "head 0.1", "feed-forward 1"}
    assert all(abs(value) < 1e-6 for value in others.values())
    where = torch.zeros(2, 6, dtype=torch.bool)
    where[0, -1] = True
    assert found.rows(where)[0]["part"] == "head 1.1"
    assert max(found.heads(where), key=found.heads(where).get) == (1, 1)


def test_the_lens_shows_the_answer_after_the_layer_that_writes_it(
    planted: TinyTransformer,
) -> None:
    answers = torch.tensor([2, 5])[:, None].expand(2, 6)
    lens = logit_lens(planted, TEXT, sublayers=True)
    at_end = torch.zeros(2, 6, dtype=torch.bool)
    at_end[:, -1] = True
    right = dict(zip(lens.names, lens.right(answers, at_end), strict=True))
    assert right["attention 1"] == right["feed-forward 1"] == 1
    assert right["embedding"] == 0  # all answers are alike, and none is the first
    ranks = lens.ranks(answers)
    assert (ranks[-1, :, -1] == 0).all()
    torch.testing.assert_close(lens.logits[0], torch.zeros_like(lens.logits[0]))
    assert lens.probabilities(answers)[0, 0, -1] == pytest.approx(1 / 7)
    assert lens.probabilities(answers)[-1, 0, -1] > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("join", ["pre_norm", "post_norm"])
def test_the_last_lens_is_the_model(kind: str, join: str) -> None:
    model = shaken(kind, join=join, dropout=0.5)
    tokens, padding, more = arguments(kind)
    lens = logit_lens(model, tokens, padding=padding, **more)
    assert lens.names == ["embedding", "layer 0", "layer 1", "layer 2"]
    with mode(model, training=False), torch.no_grad():
        torch.testing.assert_close(lens.logits[-1], model(tokens, padding, **more))
    full = logit_lens(model, tokens, padding=padding, sublayers=True, **more)
    each = 3 if kind == "encoder_decoder" else 2
    torch.testing.assert_close(full.logits[each], lens.logits[1])
    assert not torch.allclose(lens.logits[0], lens.logits[1])


# ---- nothing is touched


def test_the_model_is_left_as_it_was(untouched) -> None:
    model = shaken(dropout=0.5)
    tokens, _, _ = arguments("language_model")
    loss = model(tokens).logsumexp(-1).sum()
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    before, random = untouched(model), torch.random.get_rng_state()
    model.decoder.blocks[0].attention.eval()  # its own mode comes back, too
    found = logit_parts(model, tokens, 1)
    logit_lens(model, tokens)
    with pytest.raises(ValueError, match="answers should be from 0"):
        logit_parts(model, tokens, 99)
    assert untouched(model) == before
    assert torch.equal(torch.random.get_rng_state(), random)
    assert model.training
    assert not model.decoder.blocks[0].attention.training
    assert not found.values.requires_grad
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, gradients[name])


def test_hooks_go_when_the_model_fails(untouched) -> None:
    model = shaken()
    before = untouched(model)
    with pytest.raises(ValueError, match="vocab"):
        followed(model, torch.full((1, 3), 99))
    assert untouched(model) == before


# ---- what cannot be split


def test_a_sublayer_without_heads_is_one_part_and_says_so() -> None:
    model = TinyTransformer(
        11, dim=12, layers=2, heads=2, attention=["fnet", "full"], kind="classifier", classes=3
    )
    found = logit_parts(model, torch.randint(11, (2, 5)), 1)
    assert Part("attention", 0) in found.parts
    assert Part("attention", 1, 1) in found.parts
    assert found.whole == ["FNet is no sum over heads, so it is one part"]
    assert "FNet is no sum" in repr(found)
    channels = TinyTransformer(11, dim=12, layers=1, heads=2, attention="hyena")
    found = logit_parts(channels, torch.randint(11, (2, 5)), 1)
    assert Part("attention", 0) in found.parts
    assert "a head for each channel" in found.whole[0]


@pytest.mark.parametrize("depth", ["reversible", "universal", "equilibrium"])
def test_layers_that_share_no_one_stream_are_refused(depth: str) -> None:
    model = TinyTransformer(11, dim=12, layers=2, heads=2, depth=depth)
    with pytest.raises(ValueError, match="do not stand one after another on one stream"):
        logit_parts(model, torch.randint(11, (2, 5)), 1)


def test_a_block_of_a_paper_is_refused() -> None:
    model = TinyTransformer(
        11, dim=16, layers=1, heads=2, block="mobilebert", kind="token_classifier", classes=3
    )
    with pytest.raises(ValueError, match="has no parts to name; take block='layers'"):
        logit_parts(model, torch.randint(11, (2, 5)), 1)


class Doubling(torch.nn.Linear):
    """An output matrix that does more than its weight says."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_parts_that_miss_the_logit_are_refused(dtype) -> None:
    model = shaken().to(dtype)
    logit_parts(model, torch.randint(11, (2, 5)), 1)
    heads = model.decoder.blocks[1].attention.heads
    changed = Doubling(12, 12)
    changed.load_state_dict(heads.output.state_dict())
    heads.output = changed.to(dtype)
    with pytest.raises(ValueError, match="do not sum to its logits"):
        logit_parts(model, torch.randint(11, (2, 5)), 1)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ({"answers": 1.5}, TypeError, "answers should be a whole number or a tensor"),
        ({"answers": torch.tensor(0.5)}, TypeError, "answers should be whole numbers"),
        ({"answers": True}, TypeError, "answers should be a whole number"),
        (
            {"answers": torch.ones(5, dtype=torch.long)},
            ValueError,
            r"one answer for each logit, \(",
        ),
        ({"answers": 11}, ValueError, "answers should be from 0 to 10"),
        ({"answers": 1, "others": "most"}, ValueError, 'others should be answers, or "mean"'),
        ({"answers": 1, "others": -1}, ValueError, "others should be from 0 to 10"),
        ({"answers": 1, "model": torch.nn.Linear(2, 2)}, TypeError, "model should be a TinyTr"),
    ],
)
def test_bad_calls(call, error, said) -> None:
    given = {"model": shaken(), "tokens": torch.randint(11, (2, 7)), **call}
    with pytest.raises(error, match=said):
        logit_parts(**given)


def test_bad_questions() -> None:
    found = logit_parts(shaken(), torch.randint(11, (2, 7)), 1)
    with pytest.raises(ValueError, match="there is no part 'attention', 9, 0; there are embedding"):
        found.of("attention", 9, 0)
    with pytest.raises(TypeError, match="where should be a bool tensor"):
        found.means([True])
    with pytest.raises(ValueError, match=r"where should have the shape \(2, 7\)"):
        found.means(torch.ones(2, 6, dtype=torch.bool))
    lens = logit_lens(shaken(), torch.randint(11, (2, 7)))
    with pytest.raises(ValueError, match="no position is left"):
        lens.right(1, torch.zeros(2, 7, dtype=torch.bool))


def test_the_shipped_copier_answers_by_its_last_layer() -> None:
    """The repeated letters are copied by the two heads and the feed-forward layer of layer 1."""
    model, _ = attnlab.pretrained.load("induction")
    text = torch.tensor([[ord(letter) - 97 for letter in "uncopyrightables" * 2]])
    repeats = torch.zeros_like(text, dtype=torch.bool)
    repeats[:, 16:31] = True
    coming = text.roll(-1, 1)
    lens = logit_lens(model, text)
    assert lens.right(coming, repeats)[1:] == [0, 1]
    found = logit_parts(model, text, coming, others="mean")
    heads = found.heads(repeats)
    assert min(heads[1, 0], heads[1, 1]) > 10 * max(abs(heads[0, 0]), abs(heads[0, 1]))
