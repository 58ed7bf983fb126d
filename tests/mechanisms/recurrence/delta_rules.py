"""The delta rule in NumPy, one token and one head at a time, and what its pages have in common."""

import numpy as np
import torch
from torch import Tensor


def plain_rule(q: Tensor, k: Tensor, v: Tensor, b: Tensor, a: Tensor | None = None) -> Tensor:
    """o_t = q_t S_t with S_t = a S_{t-1} + b k (v - k a S_{t-1})ᵀ, for q and k as they are given;
    b (b, h, n) and a (b, h, n) or (b, h, n, d)."""
    out = np.zeros(v.shape)
    for row, head in np.ndindex(*q.shape[:2]):
        S = np.zeros((q.shape[3], v.shape[3]))
        for t in range(q.shape[2]):
            key, value, query = (x[row, head, t].numpy() for x in (k, v, q))
            if a is not None:
                S = np.reshape(a[row, head, t].numpy(), (-1, 1)) * S
            held = sum(key[r] * S[r] for r in range(len(key)))
            for r in range(len(key)):
                S[r] += b[row, head, t].item() * key[r] * (value - held)
            out[row, head, t] = sum(query[r] * S[r] for r in range(len(query)))
    return torch.from_numpy(out)


def units(x: Tensor) -> Tensor:
    """Rows of length 1, as the released code has them."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def orthonormal(n: int, d: int) -> Tensor:
    """(2, 3, n, d): n keys among the d of an orthonormal basis, one after the other and again."""
    drawn = torch.randn(2, 3, d, d, generator=torch.Generator().manual_seed(5)).double()
    basis = torch.linalg.qr(drawn).Q
    return basis.repeat(1, 1, -(-n // d), 1)[:, :, :n]


def close(found: Tensor, wanted: Tensor) -> None:
    """Up to the 1e-6 that is added to squared lengths."""
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
