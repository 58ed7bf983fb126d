"""What holds for every exercise whose answer is a number, and some numbers found in another way."""

import itertools
import math

import numpy as np
import pytest
import torch

import attnlab
from attnlab import exercises
from attnlab.architecture.join import deep_norm
from attnlab.compression import lottery_tickets
from attnlab.core.experts import room
from attnlab.core.patterns import Intervals, causal
from attnlab.exercises.answers import NumberExercise
from attnlab.experiments import mixtures
from attnlab.lens.head_distances import head_distances
from attnlab.mechanisms.convolution.lite_transformer import (
    LiteTransformerOptions,
    LongShortAttention,
)
from attnlab.mechanisms.dense import sink
from attnlab.mechanisms.fixed import etc
from attnlab.mechanisms.fixed.axial import AxialOptions
from attnlab.mechanisms.fixed.sparse_transformer import SparseTransformerOptions
from attnlab.mechanisms.recurrence import h3
from attnlab.objectives.nat import conditional_total_correlation
from attnlab.parallel import plan
from attnlab.systems.patches import into_patches
from attnlab.tasks import Batch

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


def scored_answers():
    """Of 32 texts with 128 tokens, by the library."""
    tokens = torch.zeros(32, 128, dtype=torch.int64)
    objective = attnlab.build("masked_lm", vocab=9)
    return int((objective.prepare(Batch(tokens, tokens)).targets >= 0).sum())


def pairs_of(pattern, n):
    return pattern.row(n - 1, n).numel()


def floor_of_means():
    """Passages of period 24, segments of 16: what is left of a group after those just read."""
    paid = []
    for place in range(7):
        group = range((place - 23) // 2 * 2, (place - 23) // 2 * 2 + 2)  # the target's
        read = range(-24, place - 24 + 1)  # symbols of the period before, known by this segment
        paid.append(math.log(len(set(group) - set(read))))
    return sum(paid) / 7


def integers_of_4_bits():
    """Of a layer of that shape, by the library."""
    compress = attnlab.build("quantization", bits=4, per="channel")
    return compress.bytes(compress(torch.nn.Linear(2048, 512)))


def state_of_h3():
    made = h3.H3(64, 4, options=h3.H3Options(state=16, shift=4))
    return sum(part.numel() for part in made.step(torch.randn(1, 9, 64))[1])


def chance_of_three():
    """All orders of six results: in how many the first three are all above or all below."""
    orders = list(itertools.permutations(range(6)))
    apart = [o for o in orders if max(o[:3]) < min(o[3:]) or max(o[3:]) < min(o[:3])]
    return len(apart) / len(orders)


def lost_by_a_product():
    """Of ten words in one of two dialects."""
    both = torch.stack([torch.arange(10), torch.arange(10) + 10])
    return conditional_total_correlation(both, torch.tensor([0.5, 0.5]))


def eigenvalue_along_a_key():
    """Of a key of five channels."""
    k = torch.tensor([0.1, 0.7, 0.5, 0.4, 0.3], dtype=torch.float64).sqrt()
    k = k / k.norm()
    return torch.linalg.eigvalsh(0.9 * (torch.eye(5) - 0.5 * torch.outer(k, k))).min()


def left_beside_a_sink():
    """Of nine keys with the score −2, by the page."""
    q, k = torch.ones(1, 1, 1, 1), torch.full((1, 1, 9, 1), -2.0)
    return float(sink.naive(q, k, torch.ones(1, 1, 9, 1), torch.zeros(1)))


def divergence_of_two_rows():
    """Of one head that is sure of the first of two keys and one that is not, by the lens."""
    rows = torch.tensor([[[[1.0, 0.0]], [[0.5, 0.5]]]])
    return float(head_distances({"layer": rows}).divergence[0, 1])


def expected_layer_by_parts():
    """The last layer less the shares of the whole gain that are there before it."""
    scores = (0.5, 0.6, 0.9, 0.9)
    return 3 - sum((score - scores[0]) / (scores[-1] - scores[0]) for score in scores[1:-1])


def tiles_with_an_allowed_pair(n, tile):
    """By the intervals of the library's causal pattern, as its kernels visit them."""
    at = Intervals.blocks(0, n, tile)
    return int(causal().covers(at[:, None], at).some.sum())


def part_of_a_head():
    """What is missing from the logit without it, at the same scale."""
    stream, row = torch.tensor([[1.0, 2.0], [2.0, 0.0], [1.0, -1.0]]), torch.tensor([1.0, 2.0])
    return float((stream.sum(0) @ row - stream[[0, 2]].sum(0) @ row) / 2)


# The right numbers, found in another way or rounded as a learner might.
def bytes_of_a_token():
    """By the cache that a layer of these sizes keeps of one token more."""
    layer = attnlab.build("gqa", dim=32 * 128, heads=32, kv_heads=8, causal=True)
    state = layer.bfloat16().step(torch.zeros(1, 1, 32 * 128, dtype=torch.bfloat16))[1]
    return 24 * sum(x.numel() * x.element_size() for x in state)


OTHERWISE = {
    "check_arrival_share": (0.14, 0.138, np.float32(4 / 29)),
    "check_attended_position": ("uncopyrightables".find("y"),),
    "check_attention_parameters": (
        numbers_of(torch.nn.LayerNorm(64)) + 4 * numbers_of(torch.nn.Linear(64, 64, bias=False)),
    ),
    "check_axial_pairs": (
        sum(AxialOptions(width=64, axis=axis).pattern().count(48 * 64) for axis in (0, 1)),
    ),
    "check_cache_bytes": (327_680,),
    "check_cache_length": (min(n for n in range(99) if 2 * 64 * n > 64 * 64 + 64),),
    "check_chain_pairs": (2 * 64**2 - 1,),
    "check_collected_bytes": (4 * 2_500 * 12 * 768,),
    "check_convolved_parameters": (
        numbers_of(LongShortAttention(512, 8, options=LiteTransformerOptions(kernel=7))),
    ),
    "check_decoder_parameters": (
        numbers_of(torch.nn.TransformerDecoderLayer(64, 2, 256)) - 2 * (4 * 64),  # biases
    ),
    "check_devices_needed": (math.ceil(plan.states_held(70 * 10**9) / 80e9),),
    "check_equal_lengths": (18 / 6,),
    "check_equal_pairs": (min(n for n in range(1, 999) if n * n >= 2 * 32 * n),),
    "check_etc_pairs": (etc.ETCOptions(global_tokens=20, radius=10).pattern().count(1020),),
    "check_erased_eigenvalue": (eigenvalue_along_a_key(),),
    "check_exact_pairs": (
        int(torch.linalg.matrix_rank(torch.arange(1.0, 1585).square().sin().view(99, 16))),
    ),
    "check_expert_capacity": (int(room(torch.zeros(1, 500, 4), 16, 1.25, None)),),
    "check_far_part": (320,),
    "check_feature_count": (math.ceil(4 * math.expm1(10)),),
    "check_gap": (4, 1 / 0.25),
    "check_h3_state": (state_of_h3(),),
    "check_half_life": (34.7,),
    "check_hash_length": (
        next(n for n in range(1000, 20_000) if 2 * n / 64 * 64 >= 4 * 64 * 129),
        16_500,
    ),
    "check_image_tokens": (into_patches(torch.zeros(1, 3, 384, 384), 16).shape[1] + 1,),
    "check_index_ratio": (12 * 2 * 16 / 16,),
    "check_keys_read": (
        len([start for start in range(0, 65_536, 16) if start + 31 <= 65_535]) + 16 * 64 + 512,
    ),
    "check_mean_floor": (floor_of_means(), 0.297, 0.3, np.float32(0.2971)),
    "check_microbatches": (
        next(m for m in (120, 134, 135) if plan.schedule(16, m)[0].count(None) <= 0.2 * (m + 15)),
    ),
    "check_mode_half_life": (200 * math.log(2), 139),
    "check_nats_lost": (lost_by_a_product(), 6.238),
    "check_quantized_bytes": (integers_of_4_bits(), 526_848),
    "check_overflow_tokens": (
        next(t for t in range(1, 99) if torch.tensor(2.0 * t).exp().isinf()),
    ),
    "check_path_count": (len(list(itertools.product(range(7), repeat=3))),),
    "check_projection_parameters": (24 * 128 * 512, 1.57e6, 1.6e6),
    "check_pruning_rounds": (
        min(r for r in range(99) if lottery_tickets.share_left(0.2, r) < 0.1),
    ),
    "check_push": (2.576,),
    "check_reach": (4608.0,),
    "check_readings": (len(range(30)) + len(range(8)),),
    "check_ring_layers": (min(s for s in range(12) if 2 * s + 1 >= 12),),
    "check_token_bytes": (bytes_of_a_token(),),
    "check_scored_answers": (scored_answers(),),
    "check_share_of_a_task": (mixtures.mixture(*mixtures.TASKS, ratio=3.0).rates["sorting"],),
    "check_root_value": ((8 / 2 + 13 / 3) / 2,),
    "check_rounds": (min(r for r in range(99) if 1 - 0.5**r >= 0.99),),
    "check_score_bytes": (2**30,),
    "check_seed_chance": (chance_of_three(),),
    "check_share_left": (0.22, torch.tensor(-1.5).exp()),
    "check_shared_parameters": (sum(3e6 * (layer == 0) + 5e6 for layer in range(12)),),
    "check_sharp": (2.2,),
    "check_slowest_turn": (2000 * math.pi, 6283),
    "check_soft_share": (float(torch.tensor([1.5, 0.5]).softmax(0)[1]), 0.2689),
    "check_sorting_length": (min(n for n in range(64, 9999, 64) if n * n / 64**2 >= 2 * n),),
    "check_state_numbers": (537.5, 535, 540, torch.tensor(537.0)),
    "check_stream_factor": (deep_norm.constants(100)[0], 2 * 12.5**0.25),
    "check_strided_keys": (pairs_of(SparseTransformerOptions(stride=128).pattern(), 16_384),),
    "check_table_length": (min(n for n in range(999) if 8 * n * n >= 2 * 512**2),),
    "check_table_width": (max(r for r in range(48) if 1600 * r + 48 * r < 1600 * 48),),
    "check_time_crossing": (next(n for n in range(1, 9999) if n / 80 >= 64 / 10),),
    "check_token_count": (65,),
    "check_training_gain": (1.22,),
    "check_transform_flops": (2_621_440,),
    "check_transient_keys": (len(range(-127, 128)) + len(range(0, 16_384, 16)),),
    "check_unused_rows": (
        33 - len({max(j - i, -16) + 16 for i in range(99) for j in range(i + 1)}),
    ),
    "check_uniform_row": (0.0663, 13 / 14**2),
    "check_uniform_share": ((1 / 3 + 2 / 5) / 2, 0.367),
    "check_weight_left": (left_beside_a_sink(),),
    "check_divergence_by_hand": (divergence_of_two_rows(),),
    "check_causal_visits": (tiles_with_an_allowed_pair(4096, 64),),
    "check_expected_layer_by_hand": (expected_layer_by_parts(), 7 / 4),
    "check_own_caption": (float(torch.tensor([10.0, 8.0]).softmax(0)[0]), 0.88),
    "check_pointer_column": ((0.2 * 3 + 0.5 * (11 - 8) + 0.3 * (12 - 8)), 3.3),
    "check_part_by_hand": (part_of_a_head(), 1),
    "check_right_after_twelve": (math.exp(12 * math.log(0.98)), 0.785),
}


@pytest.mark.parametrize("name", EXERCISES)
def test_the_number_is_found_in_another_way(name):
    for answer in OTHERWISE[name]:
        verdict = EXERCISES[name](answer)
        assert verdict.right, verdict.message
