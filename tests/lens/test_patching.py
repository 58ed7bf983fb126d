"""Patching: all is the other run, nothing is this run, and the planted path is the one found."""

import numpy as np
import pytest
import torch

import attnlab
from attnlab.lens.patching import FeedForward, Head, Patching, Path, Pattern, Residual
from attnlab.models.tiny import TinyTransformer

TEXT = torch.tensor([[0, 1, 2, 3, 4, 1]])  # after 1 came 2
OTHER = torch.tensor([[0, 3, 2, 1, 4, 1]])  # after 1 came 4


@pytest.fixture
def induction(planted: TinyTransformer) -> Patching:
    return Patching(planted, TEXT, OTHER, answer=4, instead=2)


def random_model(kind="language_model", **options):
    more = {"classes": 5} if kind in ("classifier", "token_classifier") else {}
    model = TinyTransformer(
        11, dim=12, layers=3, heads=2, kind=kind, max_len=16, **{**more, **options}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


def random_patching(kind="language_model", **options):
    text, other = torch.randint(11, (2, 3, 7))
    more = {"source": torch.randint(11, (3, 5))} if kind == "encoder_decoder" else {}
    model = random_model(kind, **options)
    return model, text, other, Patching(model, text, other, answer=3, instead=1, **more), more


# ---- all and nothing


@pytest.mark.parametrize(
    "kind", ["language_model", "classifier", "token_classifier", "encoder_decoder"]
)
@pytest.mark.parametrize("join", ["pre_norm", "post_norm"])
def test_nothing_is_this_run_and_everything_is_the_other(kind: str, join: str) -> None:
    model, text, other, run, more = random_patching(kind, join=join, dropout=0.5)
    model.eval()
    with torch.no_grad():
        this, that = model(text, **more), model(other, **more)
    assert torch.equal(run.logits(), this)
    assert run.moved() == 0
    every = range(text.shape[1])
    for layer in range(run.layers + 1):
        for at in (None, tuple(every)):
            assert torch.equal(run.logits(Residual(layer, at)), that)
            assert run.moved(Residual(layer, at)) == 1
    at_embedding = run.logits(*(Residual(0, (at,)) for at in every))
    assert torch.equal(at_embedding, that)


def test_all_parts_together_are_the_other_run() -> None:
    model, _, other, run, _ = random_patching()
    heads = [Head(layer, head) for layer in range(3) for head in range(2)]
    feeds = [FeedForward(layer) for layer in range(3)]
    paths = [Path((layer, head), None, "logits") for layer in range(3) for head in range(2)]
    torch.testing.assert_close(run.logits(Residual(0), *heads, *feeds), model.eval()(other))
    straight = run.logits(Path("embedding", None, "logits"), *paths)
    replaced = run.logits(Residual(0), *heads, *(FeedForward(layer, ()) for layer in range(3)))
    assert not torch.allclose(straight, replaced)  # the feed-forward layers stay those of the text
    pinned = run.logits(Path("embedding", None, "logits", True), *(
        Path(path.sender, None, "logits", True) for path in paths
    ))  # fmt: skip
    torch.testing.assert_close(pinned, model(other))


def test_the_same_part_of_the_same_text_changes_nothing() -> None:
    """Where both texts agree so far, nothing moves."""
    model = random_model().eval()
    text = torch.randint(11, (2, 7))
    other = text.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 11
    run = Patching(model, text, other, answer=3, instead=1)
    same = tuple(range(5))
    assert run.moved(Residual(1, same)) == pytest.approx(0, abs=1e-12)
    assert run.moved(Head(1, 0, same), FeedForward(2, same)) == pytest.approx(0, abs=1e-12)
    assert abs(run.moved(Head(1, 0))) > 1e-6


# ---- one head, by hand


def test_a_patched_head_is_the_formula() -> None:
    """One layer: the other text's head output, through its columns of the output matrix."""
    model = TinyTransformer(11, dim=12, layers=1, heads=3, max_len=16, hidden=5).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    text, other = torch.randint(11, (2, 2, 7))
    run = Patching(model, text, other, answer=3, instead=1, position=4)
    block = model.decoder.blocks[0]
    outs = {}
    block.attention.heads.output.register_forward_pre_hook(
        lambda _, given: outs.update({len(outs): given[0].clone()})
    )
    with torch.no_grad():
        model(text)
        model(other)
        joined = outs[0].clone()
        joined[:, 4, 4:8] = outs[1][:, 4, 4:8]  # head 1 at position 4
        heads = block.attention.heads
        x = model.embedding(text) + model.positions.weight[:7]
        x = x + joined @ heads.output.weight.T
        x = x + block.feed_forward(block.feed_forward_residual.norm(x))
        expected = model.logits(model.decoder.norm(x))
    torch.testing.assert_close(run.logits(Head(0, 1, (4,))), expected)
    away = (expected[:, 4, 3] - expected[:, 4, 1]).mean() - run.difference
    share = float(away) / (run.difference_of_other - run.difference)
    assert run.moved(Head(0, 1, (4,))) == pytest.approx(share)


def test_answers_and_positions_of_each_text() -> None:
    model = random_model().eval()
    text, other = torch.randint(11, (2, 2, 7))
    answer, at = torch.tensor([3, 5]), torch.tensor([2, -1])
    run = Patching(model, text, other, answer=answer, instead=1, position=at)
    logits = model(text)
    expected = (logits[0, 2, 3] - logits[0, 2, 1] + logits[1, 6, 5] - logits[1, 6, 1]) / 2
    assert run.difference == pytest.approx(expected.item())


# ---- the planted circuit


def test_the_planted_heads_move_the_answer(induction: Patching) -> None:
    assert induction.difference == pytest.approx(-5, abs=0.01)
    assert induction.difference_of_other == pytest.approx(5, abs=0.01)
    found = induction.heads()
    assert found.shape == (2, 2)
    assert found[0, 0] == pytest.approx(1, abs=0.01)
    assert found[1, 1] == pytest.approx(1, abs=0.01)
    assert np.abs(found[[0, 1], [1, 0]]).max() < 0.01
    patterns = induction.patterns()
    assert patterns[1, 1] == pytest.approx(1, abs=0.01)
    assert patterns[0, 0] == pytest.approx(0, abs=0.01)  # one place before, in both texts
    assert np.abs(patterns[[0, 1], [1, 0]]).max() < 0.01


def test_the_stream_carries_the_answer_where_it_is_looked_for(induction: Patching) -> None:
    found = induction.residual()
    assert found.shape == (3, 6)
    before = np.zeros(6)
    before[[1, 3]] = found[0, [1, 3]]  # the two tokens that differ
    np.testing.assert_allclose(found[0], before, atol=0.01)
    middle = found[1].copy()  # behind head 0.0 the next positions know what stood before them
    middle[[2, 4]] = 0
    assert np.abs(middle).max() < 0.01
    assert found[1, 2] + found[1, 4] > 0.9
    np.testing.assert_allclose(found[2], [0, 0, 0, 0, 0, 1], atol=0.01)


def test_the_planted_path_leads_into_the_key(induction: Patching) -> None:
    found = induction.paths((1, 1))
    assert {into: shares.shape for into, shares in found.items()} == {
        "query": (1, 2), "key": (1, 2), "value": (1, 2)
    }  # fmt: skip
    assert found["key"][0, 0] == pytest.approx(1, abs=0.01)
    others = [found["key"][0, 1], *found["query"][0], *found["value"][0]]
    assert np.abs(others).max() < 0.01
    into_other = induction.paths((1, 0))
    assert max(np.abs(shares).max() for shares in into_other.values()) < 0.01
    assert induction.moved(Path((1, 1), None, "logits")) == pytest.approx(1, abs=0.01)
    assert abs(induction.moved(Path((0, 0), None, "logits"))) < 0.01


def test_what_the_head_reads_straight_from_the_tokens(planted: TinyTransformer) -> None:
    """Another token after the first 1: its vector is the value, read without any head between."""
    other = TEXT.clone()
    other[0, 2] = 5
    run = Patching(planted, TEXT, other, answer=5, instead=2)
    assert run.moved(Path("embedding", (1, 1), "value")) == pytest.approx(1, abs=0.05)
    for into in ("query", "key"):
        assert abs(run.moved(Path("embedding", (1, 1), into))) < 0.01
    assert np.abs(run.paths((1, 1))["key"]).max() < 0.01


def test_a_path_is_cut_by_other_heads(planted: TinyTransformer) -> None:
    """A token that reaches the key by head 0.0 alone does not take the straight path."""
    run = Patching(planted, TEXT, OTHER, answer=4, instead=2)
    assert abs(run.moved(Path("embedding", (1, 1), "key"))) < 0.01
    assert run.moved(Residual(0)) == 1


def test_paths_through_a_feed_forward_layer(planted: TinyTransformer) -> None:
    """Head 0.0's copy goes on only where a feed-forward layer moves it to where the key is read."""
    tokens, longest = 7, 13
    feed = planted.decoder.blocks[0].feed_forward
    first = planted.decoder.blocks[0].attention.heads
    nowhere = planted.embedding.weight.shape[1]
    assert nowhere == 3 * tokens + longest
    with torch.no_grad():
        before = slice(tokens + longest, 2 * tokens + longest)
        place = slice(tokens, 2 * tokens)
        moved = first.output.weight[before, :tokens].clone()
        first.output.weight[before, :tokens] = 0
        first.output.weight[place, :tokens] = 20 * moved  # above what stands there: a place, 1
        first.output.weight[:, first.head_dim :] = 0
        reads, writes = torch.zeros(tokens, nowhere), torch.zeros(nowhere, tokens)
        reads[:, place], writes[before] = torch.eye(tokens), torch.eye(tokens) / 18
        feed.expand.weight = torch.nn.Parameter(reads)
        feed.expand.bias = torch.nn.Parameter(torch.full((tokens,), -2.0))
        feed.contract.weight = torch.nn.Parameter(writes)
    run = Patching(planted, TEXT, OTHER, answer=4, instead=2)
    assert run.moved(Head(0, 0)) == pytest.approx(1, abs=0.05)
    closed = run.paths((1, 1))["key"][0, 0]
    opened = run.paths((1, 1), through_feed_forward=True)["key"][0, 0]
    assert abs(closed) < 0.01
    assert opened == pytest.approx(1, abs=0.05)


def test_the_shipped_copier_has_the_circuit() -> None:
    """Its previous-token head feeds the keys of its two induction heads, most of it by way of
    the feed-forward layer of layer 0."""
    model, _ = attnlab.pretrained.load("induction")
    generator = torch.Generator().manual_seed(0)
    text = torch.stack([torch.randperm(60, generator=generator)[:16] for _ in range(8)])
    other = text.clone()
    other[:, [4, 10]] = text[:, [10, 4]]  # what comes after these two is exchanged
    probe = text[:, 4:5]
    both = [torch.cat((each, probe), 1) for each in (text, other)]
    run = Patching(model, *both, answer=text[:, 11], instead=text[:, 5])
    heads = run.heads()
    previous = np.unravel_index(int(np.argmax(heads[0])), (1, heads.shape[1]))[1]
    assert heads[0, previous] > 0.5
    for receiver in ((1, 0), (1, 1)):
        found = run.paths(receiver)
        assert found["key"][0].argmax() == previous
        assert found["key"][0, previous] > 5 * abs(found["query"][0, previous])
        through = run.paths(receiver, through_feed_forward=True)["key"][0, previous]
        assert through > 2 * found["key"][0, previous]


# ---- nothing is touched, and what is refused


def test_the_model_is_left_as_it_was(untouched) -> None:
    model = random_model(dropout=0.5)
    model(torch.randint(11, (1, 5))).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    before = untouched(model)
    text, other = torch.randint(11, (2, 2, 7))
    run = Patching(model, text, other, answer=3, instead=1)
    run.heads(), run.patterns(), run.paths((2, 1))
    with pytest.raises(ValueError, match="head should be from 0 to 1"):
        run.moved(Head(0, 7))
    assert untouched(model) == before
    assert model.training
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert run.heads().tolist() == run.heads().tolist()


def test_a_pattern_needs_weights_times_values() -> None:
    text, other = torch.randint(11, (2, 2, 7))
    gated = Patching(random_model(attention="gated_attention"), text, other, answer=3, instead=1)
    assert np.isfinite(gated.heads()).all()
    with pytest.raises(ValueError, match="is not its weights times its values"):
        gated.moved(Pattern(0, 0))
    linear = Patching(random_model(attention="linear"), text, other, answer=3, instead=1)
    with pytest.raises(ValueError, match="this mechanism noted no weights"):
        linear.patterns()


def test_a_pattern_and_a_path_into_the_value_of_one_head_act_together() -> None:
    """The other text's pattern mixes the values that the path has changed."""
    model = random_model()
    text, other = torch.randint(11, (2, 2, 7))
    run = Patching(model, text, other, answer=3, instead=1)
    pattern, path = Pattern(1, 1), Path([0, 0], (1, 1), "value")  # type: ignore[arg-type]
    both = run.logits(pattern, path)
    assert torch.equal(both, run.logits(path, pattern))
    for alone in (pattern, path):
        assert not torch.allclose(both, run.logits(alone))


def test_shared_keys_have_no_path_of_their_own() -> None:
    text, other = torch.randint(11, (2, 2, 7))
    run = Patching(random_model(attention="multi_query"), text, other, answer=3, instead=1)
    assert np.isfinite(run.moved(Path((0, 0), (1, 1), "query")))
    with pytest.raises(ValueError, match="shares its key with other heads"):
        run.moved(Path((0, 0), (1, 1), "key"))


def test_layers_without_heads_are_left_out() -> None:
    model = TinyTransformer(
        11, dim=12, layers=2, heads=2, attention=["fnet", "full"], kind="classifier", classes=4
    )
    run = Patching(model, *torch.randint(11, (2, 2, 5)), answer=3, instead=1)
    found = run.heads()
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    with pytest.raises(ValueError, match="layer 0 has no heads: FNet is no sum over heads"):
        run.moved(Head(0, 0))


def run_of(**given):
    text, other = torch.randint(11, (2, 2, 7), generator=torch.Generator().manual_seed(1))
    arguments = {"text": text, "other": other, "answer": 3, "instead": 1, **given}
    return Patching(arguments.pop("model", None) or random_model(), **arguments)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda: run_of(other=torch.ones(2, 6, dtype=torch.long)),
            ValueError,
            "one shape, so that",
        ),
        (lambda: run_of(answer=11), ValueError, "answer should be from 0 to 10"),
        (lambda: run_of(instead=0.5), TypeError, "instead should be a whole number"),
        (lambda: run_of(instead=3), ValueError, "both texts have the same difference of logits"),
        (lambda: run_of(position=7), ValueError, "position should be from -7 to 6, got 7"),
        (
            lambda: run_of(position=torch.zeros(3, dtype=torch.long)),
            ValueError,
            "one for each text",
        ),
        (lambda: run_of(position=0.5), TypeError, "position should be whole numbers"),
        (lambda: run_of(model=random_model(depth="shared")), ValueError, "share a sublayer"),
        (lambda: run_of().moved(3), TypeError, "a patch should be a Head, FeedForward"),
        (lambda: run_of().moved(Head(3, 0)), ValueError, "layer should be from 0 to 2, got 3"),
        (lambda: run_of().moved(Head(0, 0, (9,))), ValueError, "positions should be from -7"),
        (lambda: run_of().moved(Head(0, 0, 4)), TypeError, "positions should be a tuple"),
        (
            lambda: run_of().moved(Path((0, 0), (1, 0), "keys")),
            ValueError,
            "there is no into 'keys'",
        ),
        (lambda: run_of().moved(Path((1, 0), (1, 1), "key")), ValueError, "in a later layer"),
        (lambda: run_of().moved(Path((1, 0), None, "key")), ValueError, "has no receiver"),
        (lambda: run_of().moved(Path(3, (1, 1), "key")), TypeError, "a head should be a pair"),
        (lambda: run_of().paths((0, 0)), ValueError, "the first layer reads the embedding alone"),
        (
            lambda: run_of().moved(Path((0, 0), None, "logits"), Head(0, 0)),
            ValueError,
            "paths to the logits are patched together",
        ),
        (
            lambda: run_of().moved(
                Path((0, 0), (1, 1), "key"), Path((0, 1), (1, 1), "key", through_feed_forward=True)
            ),
            ValueError,
            "should lead all through",
        ),
    ],
)
def test_bad_calls(call, error, said) -> None:
    with pytest.raises(error, match=said):
        call()


def test_a_classifier_has_no_position() -> None:
    with pytest.raises(ValueError, match="a classifier answers once for each text"):
        run_of(model=random_model("classifier"), position=2)
