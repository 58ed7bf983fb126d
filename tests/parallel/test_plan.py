"""The formulas of divisions, beside what is counted: in processes, slot by slot, on meta."""

import pytest
import torch
from torch import nn

from attnlab import TinyTransformer
from attnlab.models.counts import count
from attnlab.parallel import plan as plans
from attnlab.parallel import steps, tensor
from attnlab.parallel.errors import ProcessesError
from attnlab.parallel.launch import in_processes
from attnlab.parallel.plan import Cluster, Model, idle_share, plan, schedule, states_held

SMALL = Model(layers=6, dim=20, heads=4, vocab=13, hidden=28)
CLUSTER = Cluster(devices=8, machine=4, memory=1e6, flops=1e9, inside=1e8, between=1e7)
TRILLION = Model(layers=128, dim=25_600, heads=160, vocab=51_200, hidden=102_400)


def one_step(group, x, experts):
    """What each exchange of a step gives, and what this process sends for it."""
    before = len(group.sent)
    total = group.all_reduce(x[group.rank], "gradients")
    sent = sum(each.numbers for each in group.sent[before:])
    return steps.counted_steps(group, x, experts) | {"data": steps.Counted(total, sent, 0, 0)}


@pytest.mark.parametrize("p", [2, 3])
def test_exchanges_give_what_one_process_computes_and_send_what_is_claimed(p):
    model = Model(layers=1, dim=7, heads=1, vocab=1, hidden=1)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(p, p * 5, 7, generator=generator, dtype=torch.float64)
    experts = torch.randn(p, 7, 7, generator=generator, dtype=torch.float64)
    shard = 5 * p * 7
    for rank, found in enumerate(in_processes(one_step, p, x, experts)):
        whole = x.reshape(-1, 7) @ experts[rank]
        routed = torch.stack([x[rank].view(p, 5, 7)[e] @ experts[e] for e in range(p)])
        exact = {"data": x.sum(0), "gathered": whole, "travelling": whole, "experts": routed}
        numbers = {
            "data": plans.data_sent(shard, p),
            "gathered": (p - 1) * shard,
            "travelling": (p - 1) * shard,
            # Forward only: a half of the all-to-alls.
            "experts": plans.experts_sent(model, 5 * p**2, p) // 2,
        }
        assert {name: each.numbers for name, each in found.items()} == numbers
        for name, each in found.items():
            torch.testing.assert_close(each.result, exact[name], rtol=1e-12, atol=1e-12)
        assert (found["gathered"].products, found["travelling"].products) == (1, p)
        assert found["travelling"].exchanges == p - 1


def test_rows_that_cannot_be_sent_evenly_are_refused():
    with pytest.raises(ProcessesError, match="5 rows of a process cannot be sent to 2 experts"):
        in_processes(steps.counted_steps, 2, torch.ones(2, 5, 3), torch.ones(2, 3, 3))


@pytest.mark.parametrize("processes", [1, 3])
def test_a_sharded_update_is_the_update(processes):
    arguments = (5, 6, 24)  # seed, updates, batch: 3 processes share 24 images
    whole, parts = (
        in_processes(_trained, processes, seed, sharded, updates, batch)
        for seed, updates, batch in [arguments]
        for sharded in (False, True)
    )
    numbers = 64 * 48 + 48 + 48 * 10 + 10
    filled = numbers + -numbers % processes
    torch.testing.assert_close(torch.cat([each.weights for each in parts]), whole[0].weights)
    for one, other in zip(whole, parts, strict=True):
        assert one.losses == pytest.approx(other.losses, abs=1e-6)
        assert one.losses[-1] < one.losses[0]
        assert (one.held, other.held) == (2 * filled, 2 * filled // processes)
        assert one.bytes == 4 * plans.data_sent(filled, processes)
        assert other.bytes == 4 * plans.sharded_sent(filled, processes, 1)


def _trained(group, seed, sharded, updates, batch):
    return steps.train_shares(group, seed, sharded, updates, batch)


def test_processes_that_share_a_batch_train_as_one():
    (one,) = steps.train(1, [5, 6], sharded=False)
    shared = steps.train(2, [5, 6], sharded=True)[1]
    for alone, part in zip(one, shared, strict=True):
        assert part.losses == pytest.approx(alone.losses, abs=1e-4)
    assert one[0].losses != one[1].losses


def test_layers_send_what_the_page_of_tensor_parallelism_counts():
    """Its forward pass is counted there; Megatron's backward pass sends as much."""
    forward, _ = tensor.numbers_sent(2, 11, 20, 6, 4)
    assert plans.tensor_sent(SMALL, 22, 4) == 2 * forward
    assert plans.tensor_sent(SMALL, 22, 4, again=True) == 3 * forward
    assert plans.tensor_sent(SMALL, 22, 1) == 0


@pytest.mark.parametrize("options", [{}, {"feed": "gated"}])
def test_matrices_and_operations_are_those_of_the_model(options):
    with torch.device("meta"):
        built = TinyTransformer(
            13, dim=24, layers=6, heads=4, hidden=28, positions="rope", **options
        )
    model = Model(layers=6, dim=24, heads=4, vocab=13, hidden=28, gates=bool(options))
    assert model.parameters == sum(p.numel() for p in built.parameters() if p.dim() > 1)
    # The operations of one forward pass are a third of those of a step.
    assert count(built.to_empty(device="cpu"), 11)[-1].flops == model.flops(11, 11, again=False) / 3
    assert model.flops(11, 11) == 4 * model.flops(11, 11, again=False) // 3


def test_a_trillion_parameters_on_the_meta_device():
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(TRILLION.dim, TRILLION.heads, TRILLION.hidden)
        embedding = nn.Embedding(TRILLION.vocab, TRILLION.dim)
    matrices = sum(p.numel() for p in layer.parameters() if p.dim() > 1)
    vectors = sum(p.numel() for p in layer.parameters() if p.dim() == 1)
    assert TRILLION.parameters == 128 * matrices + embedding.weight.numel()
    assert 128 * vectors < 1e-4 * TRILLION.parameters
    assert TRILLION.parameters == 1_007_943_680_000


def test_experts_count_once_for_a_token_and_all_in_memory():
    sizes = {"layers": 3, "dim": 8, "heads": 2, "vocab": 5, "hidden": 16}
    one, many = Model(**sizes), Model(**sizes, experts=4, chosen=2)
    assert many.parameters - one.parameters == 3 * (3 * 2 * 8 * 16 + 8 * 4)
    assert many.used - one.parameters == 3 * (2 * 8 * 16 + 8 * 4)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (4, 1), (4, 4), (3, 8), (5, 16)])
def test_idle_slots_are_counted_in_the_schedule(stages, microbatches):
    rows = schedule(stages, microbatches)
    assert {len(row) for row in rows} == {2 * (microbatches + stages - 1)}
    for stage, row in enumerate(rows):
        assert sum(each is None for each in row) / len(row) == idle_share(stages, microbatches)
        done = [each for each in row if each is not None]
        assert done == [
            *(plans.Slot("forward", i) for i in range(microbatches)),
            *(plans.Slot("backward", i) for i in reversed(range(microbatches))),
        ]
        for each in done:  # each pass after the one that it needs
            at = row.index(each)
            if each.way == "forward" and stage:
                assert rows[stage - 1].index(each) < at
            if each.way == "backward" and stage < stages - 1:
                assert rows[stage + 1].index(each) < at
            if each.way == "backward":
                assert row.index(plans.Slot("forward", each.microbatch)) < at


def test_sharding_divides_from_the_right_and_sends():
    held = [states_held(1_000, 10, stage) for stage in (0, 1, 2, 3)]
    assert held == [16_000, 5_200, 3_400, 1_600]
    assert [plans.sharded_sent(1_000, 10, stage) for stage in (0, 1, 2, 3)] == [
        *(1_800, 1_800, 1_800, 2_700)
    ]
    assert plans.data_sent(1_000, 1) == 0


def test_a_plan_adds_up_what_the_formulas_say():
    found = plan(SMALL, CLUSTER, batch=8, n=10, tensor=2, pipeline=2, stage=1)
    own = -(-SMALL.parameters // 4)
    assert found.data == 2
    assert found.states == states_held(own, 2, 1)
    # 2 bytes for each input of 3 layers of 2 waiting texts, and (10 + 24/2) for one layer.
    assert found.activations == 2 * 10 * 20 * 3 * 2 + 10 * 20 * (10 + 12)
    assert found.sent == (
        2 * 6 * 2 * 40 * 20 * 3 // 2,  # 6 all-reduces of 2 (p-1)/p = 1 in half of 6 layers
        2 * 2 * 40 * 20,
        2 * 2 * (own // 2),
    )
    assert found.idle == 1 / 5
    products = SMALL.flops(80, 10) / 8e9
    expected = (products + found.sent[0] / 1e8) / 0.8 + (found.sent[1] + found.sent[2]) / 1e7
    assert found.seconds == pytest.approx(expected)
    assert found.fits == (found.memory <= 1e6)
    third = plan(SMALL, CLUSTER, batch=8, n=10, tensor=2, pipeline=2, stage=3)
    assert third.sent[2] == 2 * 12 * (own // 2)  # 4 texts a replica
    # Weights and gradients of a layer that two devices share, 2 bytes each.
    layer = (4 * 20**2 + 2 * 20 * 28) / 2
    assert third.memory == states_held(own, 2, 3) + 4 * layer + third.activations
    second = plan(SMALL, CLUSTER, batch=8, n=10, tensor=2, pipeline=2, stage=2)
    assert second.memory == states_held(own, 2, 2) + 2 * layer + second.activations
    assert found.memory == found.states + found.activations


def test_plans_that_fit_come_first_and_the_fastest_of_them():
    tight = Cluster(8, 4, 40_000, 1e9, 1e8, 1e7)
    found = plans.plans(SMALL, tight, batch=8, n=10)
    fits = [each.fits for each in found]
    assert True in fits
    assert False in fits
    assert fits == sorted(fits, reverse=True)
    seconds = [each.seconds for each in found if each.fits]
    assert seconds == sorted(seconds)
    assert all(each.tensor * each.pipeline * each.data == 8 for each in found)
    assert {each.tensor for each in found} == {1, 2, 4}  # 4 heads are not divided among 8


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: Model(2, 7, 2, 3, 4), ValueError, "dim=7 cannot be divided among 2 heads"),
        (lambda: Model(2, 8, 2, 3, 4, chosen=2), ValueError, "chosen=2 of only 1 experts"),
        (lambda: Model(2.5, 8, 2, 3, 4), TypeError, "`layers` should be a whole number"),
        (lambda: Cluster(6, 4, 1, 1, 1, 1), ValueError, "6 devices do not fill machines of 4"),
        (lambda: Cluster(8, 4, 0, 1, 1, 1), ValueError, "`memory` should be above 0"),
        (lambda: idle_share(0, 4), ValueError, "`stages` should be at least 1"),
        (lambda: states_held(10, 2, 4), ValueError, "`stage` should be 0"),
        (lambda: plans.experts_sent(SMALL, 7, 2), ValueError, "7 tokens cannot be divided among 2"),
        (lambda: _plan(tensor=3), ValueError, "8 devices are no multiple of tensor=3"),
        (lambda: _plan(tensor=8), ValueError, "heads=4 cannot be divided among tensor=8"),
        (lambda: _plan(pipeline=4), ValueError, "6 layers cannot be divided into 4 equal stages"),
        (lambda: _plan(batch=9), ValueError, "a batch of 9 texts cannot be divided among 8"),
    ],
)
def test_what_cannot_be_planned_is_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def _plan(batch=8, **options):
    return plan(SMALL, CLUSTER, batch=batch, n=10, **options)


def sharded_update(group, weights, x, stage, microbatches):
    """One step of x ↦ (x · w)² / 2 in a stage of sharding: this process's part of the new weights,
    the numbers that it keeps between microbatches, and the bytes that it sent."""
    own = weights.chunk(group.size)[group.rank].clone()
    whole = None if stage == 3 else weights.clone()
    kept = torch.zeros_like(weights if stage < 2 else own)
    before = len(group.sent)

    def all_weights():
        return torch.cat(group.all_gather(own, "weights")) if whole is None else whole

    def reduced(gradient):
        return group.reduce_scatter(gradient.chunk(group.size), "gradients")

    for rows in x.chunk(group.size)[group.rank].chunk(microbatches):
        products = rows @ all_weights()  # forward
        slope = torch.autograd.functional.jacobian(
            lambda w, rows=rows: (rows @ w).pow(2).sum() / 2, all_weights()
        )  # backward, with the weights gathered again
        assert torch.allclose(slope, rows.T @ products)
        kept += slope if stage < 2 else reduced(slope)
    own = own - 0.1 * (reduced(kept) if stage < 2 else kept)
    if whole is not None:
        whole = torch.cat(group.all_gather(own, "weights"))
    numbers = (own if whole is None else whole).numel(), kept.numel()
    return own, numbers, sum(each.bytes for each in group.sent[before:])


def all_stages(group, weights, x, cases):
    return [sharded_update(group, weights, x, *case) for case in cases]


def test_stages_of_sharding_hold_and_send_what_is_claimed_of_several_microbatches():
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(12, generator=generator, dtype=torch.float64)
    x = torch.randn(36, 12, generator=generator, dtype=torch.float64)
    exact = weights - 0.1 * (x.T @ (x @ weights))
    p, cases = 3, [(stage, m) for stage in (1, 2, 3) for m in (1, 4)]
    found = in_processes(all_stages, p, weights, x, cases)
    for number, (stage, m) in enumerate(cases):
        each = [of_one[number] for of_one in found]
        torch.testing.assert_close(torch.cat([own for own, _, _ in each]), exact)
        claimed = plans.held(12, p, stage)
        for _, numbers, sent in each:
            assert numbers == (claimed.weights / plans.BYTES, claimed.gradients / plans.BYTES)
            assert sent == 8 * plans.sharded_sent(12, p, stage, m)


def test_adams_numbers_are_those_that_no_stage_but_the_first_leaves_whole():
    """12 bytes for each parameter; in real processes: ``test_a_sharded_update_is_the_update``."""
    assert [plans.held(70, 7, stage).adam for stage in (0, 1, 2, 3)] == [840, 120, 120, 120]


@pytest.mark.parametrize("vocab", [13, 500])
def test_the_layer_that_is_whole_for_a_moment_is_the_largest(vocab):
    model = Model(layers=6, dim=20, heads=4, vocab=vocab, hidden=28, experts=2)
    matrices = [nn.Linear(20, 20, bias=False)] * 4 + [nn.Linear(20, 2, bias=False)]
    matrices += [nn.Linear(20, 28, bias=False), nn.Linear(28, 20, bias=False)] * 2
    layer = sum(each.weight.numel() for each in matrices)
    largest = max(layer, nn.Embedding(vocab, 20).weight.numel())
    assert model.layer == layer
    for stage, bytes_ in {0: 0, 1: 0, 2: 2, 3: 4}.items():
        found = plans.whole_layer_held(model, devices=5, stage=stage, parts=4)
        assert found == bytes_ * largest / 4
        assert plans.whole_layer_held(model, devices=1, stage=stage) == 0


def test_numbers_beside_the_experts_are_those_of_a_model_without_feed_forward_layers():
    model = Model(layers=3, dim=8, heads=2, vocab=5, hidden=16, experts=4, chosen=2)
    assert model.beside_experts == 3 * (4 * 8 * 8 + 8 * 4) + 5 * 8


@pytest.mark.parametrize(("link", "hidden"), [(1e9, True), (1e4, False)])
def test_a_product_whose_rows_travel_takes_as_long_as_its_steps_one_by_one(link, hidden):
    """The clock of one device: a shard is multiplied once it is there and it has the time."""
    rows, dim, columns, p, flops = 15, 7, 11, 5, 1e6
    found = plans.product(rows, dim, columns, p, flops=flops, link=link)
    work, travel = 2 * 3 * dim * columns / flops, 2 * 3 * dim / link
    there = done = 0.0
    for _ in range(p):
        begins = max(there, done)
        there, done = begins + travel, begins + work
    assert found.together == pytest.approx(done)
    assert found.apart == pytest.approx(2 * rows * dim * columns / flops + (p - 1) * travel)
    assert (found.together == pytest.approx(found.products)) is hidden
    assert found.together < found.apart
    alone = plans.product(rows, dim, columns, 1, flops=flops, link=link)
    assert (alone.sends, alone.apart) == (0, alone.together)


def test_a_product_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="16 rows cannot be divided among 5 devices"):
        plans.product(16, 7, 11, 5, flops=1.0, link=1.0)
    for wrong in ({"flops": 0.0}, {"link": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            plans.product(15, 7, 11, 5, **({"flops": 1.0, "link": 1.0} | wrong))
