"""Lesson 67's checks: parts of a logit, and a head from another text."""

import torch
from torch.nn import functional as F

from attnlab.exercises import check_parts_of_logit, check_patched_head
from tests.exercises.frame import answers_to


def parts_of_logit(parts, w):
    """By the norm of the whole, and the share of each centred part."""
    x = parts.sum(0)
    scale = (F.layer_norm(x, x.shape, eps=0.0) @ x) / (x - x.mean()).square().sum()
    return torch.stack([(part - part.mean()) @ w * scale for part in parts])


def patched_head(joined, other, output, head, heads):
    """As a sum over the heads, each through its own columns of the output matrix."""
    split = [x.unflatten(1, (heads, -1)).unbind(1) for x in (joined, other)]
    columns = output.unflatten(1, (heads, -1)).unbind(1)
    return sum(split[at == head][at] @ columns[at].T for at in range(heads))


TestAnswers = answers_to(
    [(check_parts_of_logit, parts_of_logit), (check_patched_head, patched_head)]
)


def test_the_parts_sum_to_the_logit_of_the_normalised_stream() -> None:
    torch.manual_seed(0)
    parts, w = torch.randn(4, 11, dtype=torch.float64), torch.randn(11, dtype=torch.float64)
    found = check_parts_of_logit.right(parts, w)
    torch.testing.assert_close(found.sum(), F.layer_norm(parts.sum(0), (11,), eps=0.0) @ w)
