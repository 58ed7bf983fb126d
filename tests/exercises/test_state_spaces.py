"""The checks of lessons 36 and 39: modes, a piece of a text, spans joined, a layer that selects."""

import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_convolved_piece,
    check_joined_spans,
    check_mode_kernel,
    check_selective_layer,
    state_spaces,
)
from attnlab.mechanisms.recurrence import selective_scan
from tests.exercises.frame import answers_to, named


def kernel(A, C, step, n):
    """The answer of the recurrence to a single 1."""
    decay, out = torch.exp(step * A), []
    h = torch.zeros_like(A)
    for t in range(n):
        h = decay * h + (decay - 1) / A * (t == 0)
        out.append((C * h + (C * h).conj()).sum().real)
    return torch.stack(out)


def joined(first, second):
    """Each span as a matrix that takes (state, 1) to (state, 1)."""
    out = torch.empty_like(first)
    for channel in range(first.shape[1]):
        one, two = (
            torch.stack((span[:, channel], torch.tensor([0.0, 1.0], dtype=span.dtype)))
            for span in (first, second)
        )
        out[:, channel] = (two @ one)[0]
    return out


def layer(u, W_step, bias, W_B, W_C, A, D, state):
    """By the library's scan, token by token; the state's own part is added to its output."""
    steps = u @ W_step + bias
    given = (u[None], (-A).log(), steps[None], (u @ W_B)[None], (u @ W_C)[None], D)
    decays = torch.cumprod((F.softplus(steps)[:, :, None] * A).exp(), 0) * state
    y, h = selective_scan.advance(
        *given, torch.zeros_like(state)[None], selective_scan.SelectiveScanOptions()
    )
    return y[0] + torch.einsum("tdr,tr->td", decays, u @ W_C), h[0] + decays[-1]


def piece(u, decay, drive, C, state):
    """By matrices of powers, in place of transforms."""
    t = torch.arange(len(u))
    K = (t[:, None] - t).clamp(min=0)
    kernel = 2 * (C * drive * decay ** t[:, None]).sum(1).real
    y = (kernel[K] * (t[:, None] >= t)) @ u + 2 * (C * state * decay ** (t[:, None] + 1)).sum(
        1
    ).real
    return [y, decay ** len(u) * state + (drive * decay ** t.flip(0)[:, None] * u[:, None]).sum(0)]


def token_by_token(u, decay, drive, C, state):
    y = []
    for number in u:
        state = decay * state + drive * number
        y.append(2 * (C * state).sum().real)
    return torch.stack(y), state


def test_a_loop_is_a_loop(refuses):
    refuses(check_convolved_piece(token_by_token), "there is a loop")


def test_a_piece_is_what_the_recurrence_gives():
    given = state_spaces._piece_given(7)
    y, state = token_by_token(*given.values())
    torch.testing.assert_close(y, state_spaces._piece(*given.values())[0])
    torch.testing.assert_close(torch.view_as_real(state), state_spaces._piece(*given.values())[1])


def complex_state(mistake):
    def piece(*given):
        y, state = mistake(*given)
        return y, torch.view_as_complex(state)

    return piece


RIGHT = [
    (check_convolved_piece, piece),
    (check_mode_kernel, kernel),
    (check_joined_spans, joined),
    (check_selective_layer, layer),
]
TABLES = [
    (check_convolved_piece, named((x, complex_state(f)) for x, f in state_spaces._PIECE_MISTAKEN)),
]

TestAnswers = answers_to(RIGHT, TABLES)
