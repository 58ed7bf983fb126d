"""Gradients at attention weights: against finite differences, against autograd, and planted."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.compression.head_importance import attention_layers
from attnlab.lens.no_op import no_op, weight_gradients
from attnlab.tasks import Batch

NEXT = attnlab.build("next_token")
DELIMITER = 3


def model(**options: object) -> nn.Module:
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(11, dim=12, heads=3, layers=2, max_len=9, **options).double()
    return made.eval()


def texts(rows: int = 4) -> Batch:
    tokens = torch.randint(11, (rows, 8), generator=torch.Generator().manual_seed(1))
    tokens[:, 2] = DELIMITER
    return Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("attention", ["full", "multi_query"])
def test_the_gradient_at_a_weight_is_the_finite_difference(attention: str) -> None:
    made, batch, step = model(attention=attention), texts(), 1e-6
    found = weight_gradients(made, batch, NEXT)
    assert list(found) == list(attention_layers(made))
    for layer, (name, part) in enumerate(attention_layers(made).items()):
        with attnlab.watch(made) as seen, torch.no_grad():
            made(batch.inputs)
        values = seen[layer].values
        row, head, i, j = 1, 2, 5, 2
        v = values[row, head % values.shape[1], j]

        change = torch.zeros(*batch.inputs.shape, 3, v.shape[-1], dtype=v.dtype)
        change[row, i, head] = step * v
        sides = []
        for side in (change.flatten(-2), -change.flatten(-2)):
            handle = part.output.register_forward_pre_hook(lambda _, x, by=side: (x[0] + by,))
            with torch.no_grad():
                sides.append(float(NEXT(made, batch)[0]))
            handle.remove()
        wanted = (sides[0] - sides[1]) / (2 * step)
        assert found[name].gradients[row, head, i, j].item() == pytest.approx(wanted, rel=1e-4)
        torch.testing.assert_close(found[name].weights, seen[layer].weights)


def test_where_the_value_of_a_delimiter_is_nothing_the_gradient_is_nothing() -> None:
    """The embedding of the delimiter is 0, and there are no biases and no positions."""
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(
        11, dim=12, heads=3, layers=1, max_len=9, positions="none"
    ).double()
    batch = texts()
    stack = made.decoder
    made.embedding.weight.data[DELIMITER] = 0
    for name, p in stack.named_parameters():
        if name.endswith("bias"):
            p.data.zero_()
    ((_, found),) = weight_gradients(made, batch, NEXT).items()
    columns = batch.inputs == DELIMITER
    measured = no_op(found.weights, found.gradients, columns, mask=found.mask)
    assert measured.there == pytest.approx([0] * 3, abs=1e-12)
    assert (measured.elsewhere > 1e-3).all()
    assert (measured.share > 0).all()


def test_of_a_model_of_hugging_face_autograd_gives_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=16, max_position_embeddings=16, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    made = transformers.BertForMaskedLM(config).double().eval()
    tokens = torch.arange(9)[None]
    outputs = made(tokens, labels=tokens, output_attentions=True)
    gradients = torch.autograd.grad(outputs.loss, outputs.attentions)
    columns = torch.zeros(1, 9, dtype=torch.bool)
    columns[0, -1] = True
    for weights, gradient in zip(outputs.attentions, gradients, strict=True):
        measured = no_op(weights, gradient, columns)
        assert measured.share == pytest.approx(weights[0, :, :, -1].mean(-1).detach().numpy())
        assert measured.there == pytest.approx(gradient[0, :, :, -1].abs().mean(-1).numpy())
        rest = gradient[0, :, :, :-1].abs().mean((-1, -2))
        assert measured.elsewhere == pytest.approx(rest.numpy())


def test_an_untrained_model_has_gradients_of_one_size_everywhere() -> None:
    """The control: nothing makes delimiters special before training."""
    ratios = []
    for found in weight_gradients(model(), texts(40), NEXT).values():
        columns = texts(40).inputs == DELIMITER
        measured = no_op(found.weights, found.gradients, columns, mask=found.mask)
        ratios += (measured.there / measured.elsewhere).tolist()
    assert all(0.3 < ratio < 3 for ratio in ratios)


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    w = torch.full((2, 3, 4, 4), 0.25)
    some = torch.tensor([[True, False, False, False]] * 2)
    for call, words in (
        (lambda: no_op(w, w[:1], some), "gradients should be as large as the weights"),
        (lambda: no_op(w, w, some[:, :2]), "columns should be bool of shape"),
        (lambda: no_op(w, w, some.long()), "columns should be bool of shape"),
        (lambda: no_op(w, w, torch.ones(2, 4, dtype=torch.bool)), "some of the keys"),
        (lambda: no_op(-w, w, some), "negative"),
        (lambda: weight_gradients(nn.Linear(2, 2), texts(), NEXT), "has no attention layer"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
