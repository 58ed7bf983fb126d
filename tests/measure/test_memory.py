"""A real process's peak, coarse on purpose: tens of megabytes."""

import pytest

from attnlab.measure.memory import resident

MIB = 2**20


def test_peak_of_the_call_and_not_of_its_setup():
    setup = "import torch; before = torch.ones(60 * 2**18); del before"
    call = "x = torch.ones(40 * 2**18); del x; y = torch.ones(10 * 2**18)"
    assert 35 * MIB < resident(call, setup=setup) < 50 * MIB


def test_a_failing_program_shows_its_own_error():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        resident("1 / 0")
