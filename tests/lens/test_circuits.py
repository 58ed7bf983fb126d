"""The circuits of a head: planted ones are found, and scores and logits are those of the model."""

import pytest
import torch

import attnlab
from attnlab.catalog import shelf
from attnlab.lens.circuits import Circuit, ov_circuit, qk_circuit
from attnlab.lens.logit_parts import logit_parts
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

TEXTS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 6, 3, 5, 1, 2, 4], [0, 2, 6, 4, 3, 1, 5]])


def before(tokens):
    """The token in front of each; the first has none."""
    found = tokens.roll(1, 1)
    found[:, 0] = -1
    return found


def random_model(**options):
    model = TinyTransformer(11, dim=12, layers=2, heads=2, max_len=16, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


# ---- planted


def test_the_planted_head_looks_for_its_token_before_the_key(planted: TinyTransformer) -> None:
    found = qk_circuit(planted, TEXTS, 1, 1, keys_by=before(TEXTS))
    assert found.rows.tolist() == [*range(7)]
    assert found.columns.tolist() == [*range(7)]
    assert found.first() == 1
    assert found.chance() == pytest.approx(1 / 7)
    expected = 40.0**2 / planted.decoder.blocks[1].attention.heads.head_dim ** 0.5
    torch.testing.assert_close(found.values, expected * torch.eye(7, dtype=torch.float64))
    by_token = qk_circuit(planted, TEXTS, 1, 1)
    assert by_token.first() == pytest.approx(1 / 7)  # token 0, which stands first, reads itself


def test_the_planted_head_copies_what_it_looks_at(planted: TinyTransformer) -> None:
    found = ov_circuit(planted, TEXTS, 1, 1)
    torch.testing.assert_close(found.values, 5 * torch.eye(7, dtype=torch.float64))
    assert found.first() == 1
    nothing = ov_circuit(planted, TEXTS, 0, 0)
    assert not nothing.values.any()  # it writes where only a later head reads


def test_the_trap_the_embedding_knows_nothing_of_what_a_later_layer_reads(
    planted: TinyTransformer,
) -> None:
    raw = qk_circuit(planted, TEXTS, 1, 1, vectors="embedding")
    assert not raw.values.any()  # its keys are made of what head 0.0 has written
    assert qk_circuit(planted, TEXTS, 1, 1, keys_by=before(TEXTS)).values.any()


# ---- exact on one text


@pytest.mark.parametrize("options", [{}, {"attention_options": {"bias": True}}], ids=str)
def test_where_each_symbol_stands_once_scores_are_those_of_the_run(options) -> None:
    model, text = random_model(**options), torch.randperm(11)[:7][None]
    with watch(model) as seen:
        model(text)
    for layer in range(2):
        call = seen[layer]
        scores = (call.queries @ call.keys.mT * call.scale)[0, 1]
        found = qk_circuit(model, text, layer, 1)
        order = text[0].argsort()
        assert torch.equal(found.rows, text[0][order])
        torch.testing.assert_close(found.values, scores[order][:, order])


def test_weighed_by_the_pattern_what_tokens_would_write_is_the_part_of_the_head() -> None:
    """Without norms, whose scale differs from position to position."""
    model = random_model(join_options={"norm": "no_norm"})
    text = torch.randperm(11)[:7][None]
    with watch(model) as seen:
        model(text)
    order = text[0].argsort()
    for layer, head in ((0, 0), (1, 0), (1, 1)):
        circuit = ov_circuit(model, text, layer, head).values
        written = seen[layer].weights[0, head][:, order] @ circuit  # (n, answers)
        part = logit_parts(model, text, 3, others=5).of("attention", layer, head)[0]
        torch.testing.assert_close(written[:, 3] - written[:, 5], part)


@pytest.mark.parametrize("join", ["rezero", "layer_scale", "pre_norm"])
def test_what_is_written_is_what_joins_the_stream(join: str) -> None:
    """A text of one token: the head looks at it alone, so OV is its part of the logits."""
    model, text = random_model(join=join), torch.tensor([[4]])
    found = ov_circuit(model, text, 1, 0)
    for answer in range(11):
        part = logit_parts(model, text, answer).of("attention", 1, 0)
        torch.testing.assert_close(found.values[0, answer], part[0, 0])


def test_a_model_in_training_and_in_single_precision() -> None:
    """The same circuits, to its precision: dropout is off while one looks."""
    model = random_model(join="layer_scale", dropout=0.9).train()
    text = torch.randperm(11)[:7][None]
    exact = [circuit(model, text, 1, 0).values for circuit in (qk_circuit, ov_circuit)]
    single = [circuit(model.float(), text, 1, 0).values for circuit in (qk_circuit, ov_circuit)]
    for ours, theirs in zip(single, exact, strict=True):
        assert ours.dtype == torch.float64
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert model.training


def test_padding_is_left_out() -> None:
    model, text = random_model(), torch.tensor([[1, 2, 3, 4], [5, 6, 9, 9]])
    padding = torch.ones(2, 4, dtype=torch.bool)
    padding[1, 2:] = False
    found = qk_circuit(model, text, 1, 0, padding=padding)
    assert found.rows.tolist() == [1, 2, 3, 4, 5, 6]
    shorter = qk_circuit(model, text[1:, :2], 1, 0)
    torch.testing.assert_close(found.values[4:, 4:], shorter.values)


def test_heads_that_share_keys() -> None:
    model, text = random_model(attention="multi_query"), torch.randperm(11)[:7][None]
    with watch(model) as seen:
        model(text)
    scores = (seen[1].queries @ seen[1].keys.mT * seen[1].scale)[0, 1]
    order = text[0].argsort()
    found = qk_circuit(model, text, 1, 1)
    torch.testing.assert_close(found.values, scores[order][:, order])
    assert ov_circuit(model, text, 1, 1).values.shape == (7, 11)


# ---- the shipped copier


def test_the_trap_in_the_shipped_copier() -> None:
    """From what its layer 1 reads, both heads look for their token before the key; from the
    embedding there is nothing to see."""
    model, _ = attnlab.pretrained.load("induction")
    generator = torch.Generator().manual_seed(0)
    texts = torch.stack([torch.randperm(64, generator=generator)[:32] for _ in range(40)])
    for head in range(2):
        assert qk_circuit(model, texts, 1, head, keys_by=before(texts)).first() > 0.9
        assert qk_circuit(model, texts, 1, head, vectors="embedding").first() < 0.2


# ---- what is refused


FOLLOWED = ("full", "hopfield", "multi_query", "flash")


@pytest.mark.parametrize("name", sorted(card.name for card in shelf()))
def test_of_every_mechanism_the_weights_follow_from_the_scores_or_it_is_refused(name) -> None:
    torch.manual_seed(0)
    try:
        model = random_model(attention=name)
    except ValueError:  # not for a language model of this size
        assert name not in FOLLOWED
        return
    text = torch.randperm(11)[:8][None]
    try:
        values = qk_circuit(model, text, 1, 1).values
    except ValueError:
        assert name not in FOLLOWED
        return
    with watch(model) as seen:
        model(text)
    weights = seen[-1].weights[0, 1]
    order = text[0].argsort().argsort()
    scores = values[order][:, order].masked_fill(weights == 0, -torch.inf)
    shares = weights / weights.sum(-1, keepdim=True)  # of what a sink leaves
    torch.testing.assert_close(scores.softmax(-1), shares, rtol=0.02, atol=1e-4)


def test_a_bias_by_distance_is_left_out() -> None:
    model, text = random_model(positions="alibi"), torch.randperm(11)[:7][None]
    assert qk_circuit(model, text, 1, 0).values.isfinite().all()


def test_a_symbol_that_is_no_column_is_never_first() -> None:
    symbols = torch.tensor([1, 2]), torch.tensor([2, 3])
    found = Circuit(*symbols, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert found.first() == 0.5


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda m: qk_circuit(m, TEXTS, 2, 0), ValueError, "layer should be from 0 to 1, got 2"),
        (lambda m: ov_circuit(m, TEXTS, 0, 5), ValueError, "head should be from 0 to 1, got 5"),
        (lambda m: ov_circuit(m, TEXTS, 0, 0, vectors="raw"), ValueError, "no vectors 'raw'"),
        (lambda m: qk_circuit(m, TEXTS, 0, 0, keys_by=TEXTS[:1]), ValueError, "one for each tok"),
        (lambda m: qk_circuit(m, TEXTS, 0, 0, keys_by=[1]), TypeError, "keys_by should be a tens"),
        (lambda m: qk_circuit(m, TEXTS, 0, 0, keys_by=-TEXTS - 1), ValueError, "no token is left"),
        (
            lambda m: qk_circuit(m, TEXTS, 0, 0, keys_by=TEXTS, vectors="embedding"),
            ValueError,
            "leave keys_by out",
        ),
    ],
)
def test_bad_calls(call, error, said) -> None:
    with pytest.raises(error, match=said):
        call(random_model())


def test_circuits_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="rotates queries and keys by their positions"):
        qk_circuit(random_model(positions="rope"), TEXTS, 0, 0)
    assert ov_circuit(random_model(positions="rope"), TEXTS, 0, 0).values.isfinite().all()
    with pytest.raises(ValueError, match="with join=PostNorm other norms stand between"):
        ov_circuit(random_model(join="post_norm"), TEXTS, 0, 0)
    with pytest.raises(ValueError, match="passes a norm inside the sublayer"):
        ov_circuit(random_model(join="sub_ln"), TEXTS, 0, 0)
    with pytest.raises(ValueError, match="layer 0 has no heads"):
        qk_circuit(random_model(attention="hyena"), TEXTS, 0, 0)
    shared = random_model(cache_of=[0, 0])
    for circuit in (qk_circuit, ov_circuit):
        with pytest.raises(ValueError, match="attends to the keys and values of an earlier layer"):
            circuit(shared, TEXTS, 1, 0)
        assert circuit(shared, TEXTS, 0, 0).values.isfinite().all()


def test_layers_that_share_their_parameters_have_their_own_circuits() -> None:
    shared, text = random_model(depth="shared"), torch.randperm(11)[:7][None]
    with watch(shared) as seen:
        shared(text)
    order = text[0].argsort()
    for layer in (0, 1):
        scores = (seen[layer].queries @ seen[layer].keys.mT * seen[layer].scale)[0, 1]
        found = qk_circuit(shared, text, layer, 1)
        torch.testing.assert_close(found.values, scores[order][:, order])
