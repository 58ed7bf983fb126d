"""Rows of a layer that decodes: a state that grows and a step that gets slower are seen."""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.measure.decoding import decoding


class Held(NamedTuple):
    """What a stand-in carries."""

    tokens: Tensor
    count: Tensor


class Stand:
    """Carries the last token, or all; one more token takes a millisecond per ``slow`` of them."""

    def __init__(self, *, grows: bool, slow: int) -> None:
        self.grows, self.slow = grows, slow

    def step(self, x: Tensor, state: Held | None = None) -> tuple[Tensor, Held]:
        before = 0 if state is None else int(state.count)
        if state is not None:
            time.sleep(0.001 * before / self.slow)
        kept = x if self.grows else x[:, -1:].clone()
        return x, Held(kept, torch.tensor(before + x.shape[1]))


def test_a_state_of_constant_size() -> None:
    stand = Stand(grows=False, slow=10**6)
    held, one = decoding("Stand", stand, 8, (16, 32, 64), repeats=3, threads=1)
    assert held.figure == "Stand: bytes of the state after 64 tokens / after 16"
    assert held.note == f"{4 * 8 + 8} bytes"
    assert held.measured == 1
    assert held.met
    assert one.figure == "Stand: one token after 64 tokens / after 16"
    assert "a state of the same size in both" in one.note


def test_a_state_that_grows_and_a_step_that_gets_slower() -> None:
    held, one = decoding("Stand", Stand(grows=True, slow=8), 8, (16, 64), repeats=3, threads=1)
    assert held.measured == (4 * 8 * 64 + 8) / (4 * 8 * 16 + 8)
    assert held.met is False
    assert one.measured > 2
