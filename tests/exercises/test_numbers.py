"""What holds for every exercise whose answer is a number, and some numbers found in another way."""

import math

import numpy as np
import pytest
import torch

from attnlab import exercises
from attnlab.exercises.answers import NumberExercise
from attnlab.mechanisms.convolution.lite_transformer import LongShort, LongShortAttention
from attnlab.mechanisms.fixed.sparse_transformer import Factors

EXERCISES = {
    name: check
    for name, check in ((name, getattr(exercises, name)) for name in exercises.__all__)
    if isinstance(check, NumberExercise)
}
every_number = pytest.mark.parametrize("check", EXERCISES.values(), ids=EXERCISES)


@every_number
@pytest.mark.parametrize("style", [float, np.float64, torch.tensor])
def test_the_right_number_is_right(check, style):
    verdict = check(style(check.right))
    assert verdict.right, verdict.message


@every_number
def test_a_wrong_number_gets_its_own_sentence(check):
    assert check.mistakes
    for wrong, sentence in check.mistakes.items():
        verdict = check(wrong)
        assert not verdict.right, sentence
        assert verdict.message.endswith(sentence[1:]), verdict.message
    assert "no number yet" in check(...).message


def numbers_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


def pairs_of(pattern, n):
    return pattern.row(n - 1, n).numel()


# The right numbers, found in another way or rounded as a learner might.
OTHERWISE = {
    "check_arrival_share": (0.14, 0.138, np.float32(4 / 29)),
    "check_cache_length": (min(n for n in range(99) if 2 * 64 * n > 64 * 64 + 64),),
    "check_collected_bytes": (4 * 2_500 * 12 * 768,),
    "check_convolved_parameters": (
        numbers_of(LongShortAttention(512, 8, options=LongShort(kernel=7))),
    ),
    "check_decoder_parameters": (
        numbers_of(torch.nn.TransformerDecoderLayer(64, 2, 256)) - 2 * (4 * 64),  # biases
    ),
    "check_equal_lengths": (18 / 6,),
    "check_equal_pairs": (min(n for n in range(1, 999) if n * n >= 2 * 32 * n),),
    "check_gap": (4, 1 / 0.25),
    "check_half_life": (34.7,),
    "check_hash_length": (next(n for n in range(1000, 20_000) if 2 * n / 64 * 64 >= 4 * 64 * 129),),
    "check_index_ratio": (12 * 2 * 16 / 16,),
    "check_mode_half_life": (200 * math.log(2), 139),
    "check_projection_parameters": (24 * 128 * 512, 1.57e6, 1.6e6),
    "check_push": (2.576,),
    "check_score_bytes": (2**30,),
    "check_share_left": (0.22, torch.tensor(-1.5).exp()),
    "check_sharp": (2.2,),
    "check_slowest_turn": (2000 * math.pi, 6283),
    "check_sorting_length": (min(n for n in range(64, 9999, 64) if n * n / 64**2 >= 2 * n),),
    "check_strided_keys": (pairs_of(Factors(stride=128).pattern(), 16_384),),
    "check_table_length": (min(n for n in range(999) if 8 * n * n >= 2 * 512**2),),
    "check_table_width": (max(r for r in range(48) if 1600 * r + 48 * r < 1600 * 48),),
    "check_token_count": (65,),
    "check_transient_keys": (len(range(-127, 128)) + len(range(0, 16_384, 16)),),
    "check_uniform_row": (0.0663, 13 / 14**2),
}


@pytest.mark.parametrize("name", EXERCISES)
def test_the_number_is_found_in_another_way(name):
    for answer in OTHERWISE[name]:
        verdict = EXERCISES[name](answer)
        assert verdict.right, verdict.message
