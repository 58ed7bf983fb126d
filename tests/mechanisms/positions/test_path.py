"""PaTH: products of matrices by hand, turned keys, the recurrence without a softmax, padding."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.positions.path import FORMS, PaTHAttention, PaTHOptions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, 3, n, 5), (2, 3, n, 5), (2, 3, n, 11), (2, 3, n, 5))
    q, k, v, w = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return q, k, v, F.normalize(w, dim=-1), 2 * torch.rand(2, 3, n, dtype=torch.float64)


def matrices(w: Tensor, beta: Tensor) -> Tensor:
    """H of each token: (b, h, n, d, d)."""
    outer = w[..., None] * w[..., None, :]
    return torch.eye(w.shape[-1], dtype=w.dtype) - beta[..., None, None] * outer


@each_form
def test_each_pair_by_the_product_of_matrices(form) -> None:
    q, k, v, w, beta = made()
    H = matrices(w, beta)
    with record() as notes:
        form(q, k, v, w, beta)
    for i in range(7):
        product = torch.eye(5, dtype=torch.float64).expand(2, 3, 5, 5)
        for j in reversed(range(i + 1)):
            score = (q[:, :, i, None] @ product @ k[:, :, j, :, None]).flatten(1) * 5**-0.5
            torch.testing.assert_close(notes.last("scores")[:, :, i, j], score)
            product = product @ H[:, :, j]


@pytest.mark.parametrize("n", [1, 3, 4, 8, 13])
def test_chunks_of_any_size(n: int) -> None:
    given = made(n)
    for chunk in (1, 3, 4, 50):
        out = FORMS["chunked"](*given, options=PaTHOptions(chunk=chunk))
        torch.testing.assert_close(out, FORMS["naive"](*given))


@each_form
def test_without_strength_it_is_causal_attention(form) -> None:
    q, k, v, w, beta = made()
    expected = full.naive(q, k, v, mask=patterns.causal())
    torch.testing.assert_close(form(q, k, v, w, beta * 0), expected)


@each_form
def test_the_cache_of_turned_keys(form) -> None:
    """Token t multiplies all cached keys by its matrix, then its own is added: plain scores."""
    q, k, v, w, beta = made()
    H, cache, rows = matrices(w, beta), torch.zeros(2, 3, 0, 5, dtype=torch.float64), []
    for t in range(7):
        cache = torch.cat((cache @ H[:, :, t], k[:, :, t, None]), dim=2)
        rows.append((q[:, :, t, None] @ cache.mT * 5**-0.5).softmax(-1) @ v[:, :, : t + 1])
    torch.testing.assert_close(form(q, k, v, w, beta), torch.cat(rows, dim=2))


@each_form
def test_without_the_softmax_it_is_the_delta_rules_recurrence(form) -> None:
    """S ← H S + k vᵀ, read by q; the scores are those that the form notes."""
    q, k, v, w, beta = made()
    H, S = matrices(w, beta), torch.zeros(2, 3, 5, 11, dtype=torch.float64)
    with record() as notes:
        form(q, k, v, w, beta)
    scores = notes.last("scores").tril() * 5**0.5
    for t in range(7):
        S = H[:, :, t] @ S + k[:, :, t, :, None] * v[:, :, t, None]
        read = (q[:, :, t, None] @ S).squeeze(2)
        torch.testing.assert_close((scores @ v)[:, :, t], read)


@each_form
def test_the_first_matrix_has_no_effect_and_the_last_one_has(form) -> None:
    q, k, v, w, beta = made()
    first, last = beta.clone(), beta.clone()
    first[..., 0], last[..., -1] = 0.3, 0.3
    torch.testing.assert_close(form(q, k, v, w, first), form(q, k, v, w, beta))
    assert not torch.allclose(form(q, k, v, w, last)[:, :, -1], form(q, k, v, w, beta)[:, :, -1])


@pytest.mark.parametrize("form", FORMS)
def test_padding_is_as_if_it_were_not_there(form: str) -> None:
    """In the middle too: it has no matrix, and the convolution reads over it."""
    layer = PaTHAttention(12, 3, form=form).double()
    x = torch.randn(1, 9, 12, dtype=torch.float64)
    padding = torch.tensor([[True, True, False, False, True, False, True, True, True]])
    torch.testing.assert_close(layer(x, padding)[padding][None], layer(x[padding][None]))


def test_directions_are_unit_vectors_and_strengths_lie_between_0_and_2() -> None:
    layer = PaTHAttention(12, 3).double()
    with record() as notes:
        layer(50 * torch.randn(2, 7, 12, dtype=torch.float64))
    lengths = notes.last("directions").norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    strengths = notes.last("strengths")
    assert 0 <= strengths.min() < strengths.max() <= 2
    assert strengths.max() > 1


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="path is always causal"):
        attnlab.build("path", dim=12, heads=3)
    with pytest.raises(ValueError, match="path cannot take rotated queries and keys: the matrices"):
        attnlab.build("path", dim=12, heads=3, causal=True, positions="rope")
    layer = PaTHAttention(12, 3, options=PaTHOptions(width=3))
    _, state = layer.step(torch.randn(2, 3, 12))
    other = PaTHAttention(12, 3, options=PaTHOptions(width=2))
    other.step(torch.randn(2, 3, 12), state._replace(inputs=state.inputs[:, :1]))
    with pytest.raises(ValueError, match="the state's keys is of shape"):
        layer.step(torch.randn(2, 1, 12), state._replace(keys=state.keys[:, :, :2]))
    with pytest.raises(ValueError, match="the state holds 2 sequences, but 1 came"):
        layer.step(torch.randn(1, 1, 12), state)
