"""What every form of softmax attention promises, whichever page it is on."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnlab.core import patterns
from attnlab.mechanisms.dense.full import naive

Form = Callable[..., Tensor]


def queries_keys_values() -> tuple[Tensor, Tensor, Tensor]:
    """(2, 3, 7, 5), (2, 3, 13, 5) and (2, 3, 13, 11) in float64."""
    q, k, v = (torch.randn(2, 3, *shape).double() for shape in ((7, 5), (13, 5), (13, 11)))
    return q, k, v


def what_leaves_the_weights_unchanged(form: Form) -> None:
    q, k, v = queries_keys_values()
    out = form(q, k, v)
    shift = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(form(q, k + shift, v), out)  # one vector added to all keys
    assert not torch.allclose(form(q + shift, k, v), out)  # not so for queries
    torch.testing.assert_close(form(3 * q, k / 3, v), out)
    order = torch.randperm(13)
    torch.testing.assert_close(form(q, k[:, :, order], v[:, :, order]), out)
    means = v.mean(dim=2, keepdim=True).expand(-1, -1, 7, -1)
    torch.testing.assert_close(form(torch.zeros_like(q), k, v), means)


def empty_rows_leave_the_others_alone(form: Form) -> None:
    made = [x.requires_grad_() for x in queries_keys_values()]
    mask = torch.ones(7, 13, dtype=torch.bool)
    mask[2] = False
    out = form(*made, mask=mask)
    assert (out[:, :, 2] == 0).all()
    kept = [0, 1, 3, 4, 5, 6]
    torch.testing.assert_close(out[:, :, kept], naive(*made)[:, :, kept])
    grads = torch.autograd.grad(out.square().sum(), made)
    assert all(torch.isfinite(g).all() for g in grads)
    assert (grads[0][:, :, 2] == 0).all()


def huge_scores_do_not_overflow(form: Form) -> None:
    q, k = torch.full((1, 1, 2, 4), 200.0), torch.full((1, 1, 3, 4), 200.0)
    v = torch.randn(1, 1, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    out = form(q, k, v, mask=mask)
    torch.testing.assert_close(out[0, 0, 0], v[0, 0, :2].mean(0))


def causal_is_aligned_at_the_bottom_right(form: Form) -> None:
    """The cached decoding trap: one query among five keys is the last, and sees all of them."""
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64) for n in (1, 5, 5))
    torch.testing.assert_close(form(q, k, v, mask=patterns.causal()), naive(q, k, v))
    wrong = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert not torch.allclose(wrong, naive(q, k, v))


PROMISES: tuple[Callable[[Form], None], ...] = (
    what_leaves_the_weights_unchanged,
    empty_rows_leave_the_others_alone,
    huge_scores_do_not_overflow,
    causal_is_aligned_at_the_bottom_right,
)
