"""The loop: what is minimised, in which order, and what is reported about it."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab.objectives.batches import summed_loss
from attnlab.train import State, TrainingError, evaluate, fit
from attnlab.train.optimizer import adamw, learning_rate

QUIET = {"progress": False}


def losses(*args, **options):
    return fit(*args, **QUIET | options).column("loss")


def test_it_learns(toy, successor):
    model, task = toy(dim=11), successor()
    before = evaluate(model, task)
    fit(model, task, 150, learning_rate=0.03, **QUIET)
    after = evaluate(model, task)
    assert before.accuracy < 0.3
    assert after.accuracy > 0.95
    assert after.loss < 0.3


def test_the_first_steps_by_hand(toy, successor):
    """Mean loss, clipping, warm-up and AdamW against the few lines they stand for."""
    seen, model = [], toy(dropout=0.0)

    class Spy(successor):
        def batch(self, split, size, seed):
            seen.append((split, size, seed))
            return super().batch(split, size, seed)

    rows = fit(
        model,
        Spy(),
        20,
        batch_size=6,
        clip=0.5,
        warmup=3,
        callbacks=[lambda s: s.step < 3],
        **QUIET,
    ).rows
    hand = toy()
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [
                    p
                    for n, p in hand.named_parameters()
                    if n.endswith(("up.weight", "down.weight"))
                ]
            },
            {
                "params": [
                    p
                    for n, p in hand.named_parameters()
                    if not n.endswith(("up.weight", "down.weight"))
                ],
                "weight_decay": 0.0,
            },
        ],
        weight_decay=0.01,
    )
    calls = [call for call in seen if call[1] == 6]
    assert len({seed for _, _, seed in calls}) == len(calls) == 3
    for row, (_, size, seed), rate in zip(rows, calls, (0.25, 0.5, 0.75), strict=True):
        batch = successor().batch("train", size, seed)
        loss = F.cross_entropy(hand(batch.inputs).flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in hand.parameters()]).norm()
        assert norm > 0.5  # or clipping would not be tested
        for parameter in hand.parameters():
            parameter.grad *= 0.5 / norm
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * rate
        optimizer.step()
        assert row["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert row["gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
        assert row["learning_rate"] == pytest.approx(3e-3 * rate)
    for (name, ours), theirs in zip(model.named_parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("accumulate", [2, 3, 6])
def test_accumulation_changes_rounding_only(toy, successor, weights, accumulate):
    """Parts with very unequal numbers of scored targets."""
    whole, parts = toy(), toy()
    expected = losses(whole, successor(), 7, batch_size=6)
    assert losses(parts, successor(), 7, batch_size=6, accumulate=accumulate) == pytest.approx(
        expected, rel=1e-5
    )
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-3, atol=1e-4)


def test_it_is_a_function_of_its_seed(toy, successor):
    task = successor()
    torch.manual_seed(5)
    first = losses(toy(dropout=0.4), task, 5, seed=3)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    assert losses(toy(dropout=0.4), task, 5, seed=3) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert losses(toy(dropout=0.4), task, 5, seed=5) != first
    assert losses(toy(dropout=0.0), task, 5, seed=3) != first


def test_callbacks_that_draw_disturb_nothing(toy, successor):
    """They may also change the mode, or leave gradients behind."""

    def meddle(state):
        torch.rand(101)
        state.model.eval()
        state.model(torch.tensor([[3]])).sum().backward()

    clean = losses(toy(dropout=0.4), successor(), 5)
    assert losses(toy(dropout=0.4), successor(), 5, callbacks=[meddle]) == clean
    assert losses(toy(dropout=0.4), successor(), 5, evaluate_every=1) == clean


def test_callbacks_see_everything_and_may_stop(toy, successor):
    model, task, states, others = toy(), successor(), [], []

    def stop_at_three(state):
        states.append((state.step, state.steps, state.loss, state.model, len(state.history.rows)))
        return state.step < 3

    rows = fit(model, task, 11, callbacks=[stop_at_three, lambda s: others.append(s)], **QUIET).rows
    assert states == [(i, 11, row["loss"], model, i) for i, row in enumerate(rows, 1)]
    assert len(rows) == len(others) == 3
    assert isinstance(others[0], State)
    assert others[0].task is task
    assert others[0].device == torch.device("cpu")
    assert len(fit(model, task, 2, callbacks=[lambda s: 0], **QUIET).rows) == 2  # 0 is not False


def test_modes_gradients_and_switches_are_as_before(toy, successor):
    model = toy(dropout=0.4).eval()
    model.layers[1].train()
    found = [module.training for module in model.modules()]
    during = []
    fit(
        model,
        successor(),
        2,
        gradient_checkpointing=True,
        evaluate_every=1,
        callbacks=[lambda s: during.append((s.model.checkpoint, s.model.layers[0].training))],
        **QUIET,
    )
    assert during == [(True, True)] * 2
    assert [module.training for module in model.modules()] == found
    assert all(p.grad is None for p in model.parameters())
    assert model.checkpoint is False
    assert not hasattr(model, "_is_accelerate_prepared")


def test_gradient_checkpointing_changes_memory_only(toy, successor):
    plain, thrifty = toy(dropout=0.4), toy(dropout=0.4)
    expected = losses(plain, successor(), 3, accumulate=2)
    assert losses(thrifty, successor(), 3, accumulate=2, gradient_checkpointing=True) == expected
    assert thrifty.recomputed == 2 * 2 * 3
    assert plain.recomputed == 0


class HuggingFaceLike(nn.Linear):
    is_gradient_checkpointing = False

    def gradient_checkpointing_enable(self):
        self.is_gradient_checkpointing = True

    def gradient_checkpointing_disable(self):
        self.is_gradient_checkpointing = False

    def forward(self, inputs, padding=None):
        return super().forward(F.one_hot(inputs, 13).float())


def test_gradient_checkpointing_by_hugging_faces_switch(successor):
    model, on = HuggingFaceLike(13, 13), []
    fit(
        model,
        successor(),
        1,
        gradient_checkpointing=True,
        callbacks=[lambda s: on.append(s.model.is_gradient_checkpointing)],
        **QUIET,
    )
    assert on == [True]
    assert model.is_gradient_checkpointing is False


def test_bf16_computes_in_bfloat16_and_keeps_float32(toy, successor):
    model, kinds = toy(), []
    model.layers[0].up.register_forward_hook(lambda m, i, o: kinds.append(o.dtype))
    coarse = losses(model, successor(), 5, precision="bf16")
    fine = losses(toy(), successor(), 5)
    assert set(kinds) == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert coarse != fine
    assert coarse == pytest.approx(fine, rel=0.05)
    assert type(model).forward.__qualname__ == "ToyModel.forward"
    assert "forward" not in vars(model)  # Accelerate would have left its own behind


def test_a_classifier_and_an_encoder_decoder(toy, successor):
    classes = successor(kind="classifier", classes=3)
    assert losses(toy(classes=3, tie=False), classes, 60, learning_rate=0.03)[-1] < 1.0
    assert evaluate(toy(classes=3, tie=False), classes, batches=2, batch_size=5).targets == 10
    pairs, seen = successor(with_source=True, kind="encoder_decoder"), []
    model = toy()
    model.register_forward_pre_hook(lambda m, a, k: seen.append(k), with_kwargs=True)
    losses(model, pairs, 2, batch_size=6)
    assert all(set(k) == {"padding", "source", "source_padding"} for k in seen)
    assert seen[-1]["source"].shape == (6, 7)


def test_evaluate_counts_scored_targets(toy, successor):
    model, task = toy(dropout=0.4), successor()
    with torch.no_grad():
        result = evaluate(model, task, batches=3, batch_size=5, seed=7)
    assert result == evaluate(model, task, batches=3, batch_size=5, seed=7)
    assert result != evaluate(model, task, batches=3, batch_size=5, seed=11)
    assert result.targets < 3 * 5 * 7
    right = total = 0
    seen = []

    class Spy(successor):
        def batch(self, split, size, seed):
            seen.append(super().batch(split, size, seed))
            assert split == "validation"
            return seen[-1]

    assert evaluate(model, Spy(), batches=3, batch_size=5, seed=7) == result
    model.eval()
    loss = 0.0
    for batch in seen:
        logits, real = model(batch.inputs), batch.targets != -100
        loss += F.cross_entropy(logits[real], batch.targets[real], reduction="sum").item()
        right += int((logits.argmax(-1)[real] == batch.targets[real]).sum())
        total += int(real.sum())
    assert result.targets == total
    assert result.loss == pytest.approx(loss / total, rel=1e-5)
    assert result.accuracy == pytest.approx(right / total)


def test_rows_are_plain_and_tokens_are_counted_exactly(toy, successor):
    """Padding does not count; a source does; validation is at its steps and at the last."""
    sizes = []

    class Spy(successor):
        def batch(self, split, size, seed):
            batch = super().batch(split, size, seed)
            if size == 6 and split == "train":
                sizes.append(int(batch.padding.sum()) + int(batch.source_padding.sum()))
            return batch

    task = Spy(with_source=True)
    history = fit(toy(), task, 5, batch_size=6, evaluate_every=2, evaluate_batches=1, **QUIET)
    assert history.column("tokens") == [sum(sizes[: i + 1]) for i in range(5)]
    assert sizes[0] < 2 * 6 * 7
    plain = {"step", "loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second"}
    both = plain | {"validation_loss", "validation_accuracy"}
    assert [set(row) for row in history.rows] == [plain, both, plain, both, both]
    assert all(type(v) in (int, float) for row in history.rows for v in row.values())
    assert len(history.column("validation_loss")) == 3


def test_tokens_per_second_uses_the_wall_clock(toy, successor, monkeypatch):
    ticks = iter(range(0, 1000, 5))
    monkeypatch.setattr("attnlab.train.step.time.perf_counter", lambda: next(ticks))
    rows = fit(toy(), successor(), 2, batch_size=6, **QUIET).rows
    assert rows[0]["tokens_per_second"] == rows[0]["tokens"] / 5
    assert rows[1]["tokens_per_second"] == (rows[1]["tokens"] - rows[0]["tokens"]) / 5


def test_an_unknown_column_is_refused(toy, successor):
    history = fit(toy(), successor(), 1, **QUIET)
    assert history.column("validation_loss") == []
    with pytest.raises(ValueError, match="no column 'losses'; did you mean 'loss'"):
        history.column("losses")


def test_the_schedule():
    rates = [learning_rate(step, 23, 2.0, 4) for step in range(1, 24)]
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert max(rates) == 2.0
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0 < rates[-1] < 0.05
    middle = 5 + 19 // 2
    assert rates[middle - 1] == pytest.approx(1 + math.cos(math.pi * 9 / 19), rel=1e-6)
    assert learning_rate(1, 1, 2.0, 0) == 2.0


def test_what_decays(toy):
    model = toy(tie=False)
    model.layers[0].norm = nn.LayerNorm((7, 5))
    model.table = nn.Module()
    model.table.bias = nn.Parameter(torch.zeros(3, 5))
    model.layers[1].down.weight.requires_grad_(False)
    names = {p: n for n, p in model.named_parameters()}
    groups = adamw(model, learning_rate=0.1, weight_decay=0.7).param_groups
    decayed = {names[p] for g in groups if g["weight_decay"] == 0.7 for p in g["params"]}
    kept = {names[p] for g in groups if g["weight_decay"] == 0.0 for p in g["params"]}
    assert decayed == {
        "head.weight",
        "layers.0.up.weight",
        "layers.0.down.weight",
        "layers.1.up.weight",
    }
    assert decayed | kept | {"layers.1.down.weight"} == set(names.values())
    tied = toy()
    groups = adamw(tied, learning_rate=0.1, weight_decay=0.7).param_groups
    assert all(
        g["weight_decay"] == 0.0 for g in groups for p in g["params"] if p is tied.head.weight
    )


def test_loss_of_half_precision_logits_is_float32():
    logits = torch.randn(5, 13, generator=torch.Generator().manual_seed(3))
    targets = torch.tensor([3, -100, 5, 7, 11])
    assert summed_loss(logits.bfloat16(), targets).dtype == torch.float32
    assert summed_loss(logits.double(), targets).dtype == torch.float64
    assert summed_loss(logits, torch.full((5,), -100)) == 0


def test_the_bar(toy, successor, capsys, monkeypatch):
    fit(toy(), successor(), 3, progress=False)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    fit(toy(), successor(), 3)
    assert capsys.readouterr() == ("", "")
    monkeypatch.delenv("TQDM_DISABLE")
    fit(toy(), successor(), 3)
    out, shown = capsys.readouterr()
    assert out == ""
    for part in ("successor", "3/3", "loss ", "tokens/s"):
        assert part in shown


def test_import_attnlab_stays_light():
    program = (
        "import sys, attnlab\n"
        "heavy = {'accelerate', 'safetensors', 'tqdm', 'attnlab.train'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from attnlab import train\n"
        "assert train.fit\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "steps should be a whole number of at least 1; 0 was given"),
        ({"steps": -3}, "steps should be"),
        ({"steps": 2.5}, "steps should be"),
        ({"steps": True}, "steps should be"),
        ({"batch_size": 0}, "batch_size should be"),
        ({"batch_size": 7, "accumulate": 3}, "batch_size=7 cannot be split into accumulate=3"),
        ({"accumulate": 0}, "accumulate should be"),
        ({"precision": "fp16"}, "precision should be 'fp32' or 'bf16'.*'fp16' was given"),
        ({"learning_rate": 0}, "learning_rate should be a finite number above 0; 0 was"),
        ({"learning_rate": math.inf}, "learning_rate should be"),
        ({"learning_rate": "fast"}, "learning_rate should be"),
        ({"weight_decay": -1}, "weight_decay should be a finite number of at least 0"),
        ({"clip": 0}, "clip should be a finite number above 0 or None"),
        ({"warmup": 5}, "warmup should be a whole number from 0 to steps - 1 = 4, or None"),
        ({"warmup": -1}, "warmup should be"),
        ({"seed": 1.5}, "seed should be a whole number"),
        ({"save_every": 2}, "save_every=2 needs a folder"),
        ({"evaluate_every": 0}, "evaluate_every should be"),
        ({"evaluate_batches": 0}, "evaluate_batches should be"),
        ({"device": "abacus"}, "device should be a name PyTorch knows.*'abacus' was given"),
        ({"device": "meta"}, "device 'meta' is not available here"),
        ({"callbacks": print}, "callbacks should be a list of functions"),
        ({"callbacks": None}, "callbacks should be a list of functions"),
        ({"callbacks": [3]}, "callbacks should be a list of functions"),
    ],
)
def test_arguments_that_make_no_sense(toy, successor, weights, options, words):
    model = toy()
    before = weights(model)
    with pytest.raises(ValueError, match=words):
        fit(model, successor(), **{"steps": 5} | options)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_folder_that_is_a_file(toy, successor, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="cannot be a folder for checkpoints"):
        fit(toy(), successor(), 1, folder=tmp_path / "file")
    with pytest.raises(ValueError, match="save_every should be"):
        fit(toy(), successor(), 1, folder=tmp_path, save_every=0)


def test_a_model_without_the_switch(successor):
    model = nn.Sequential(nn.Embedding(13, 13))
    with pytest.raises(ValueError, match="Sequential has no switch for it"):
        fit(model, successor(), 1, gradient_checkpointing=True)


def test_a_model_with_nothing_to_learn(toy, successor):
    with pytest.raises(ValueError, match="no trainable parameter"):
        fit(toy().requires_grad_(False), successor(), 1, **QUIET)


def test_a_model_for_another_vocabulary(toy, successor):
    """Too few embeddings, or too few answers: an error before anything is trained."""
    with pytest.raises(ValueError, match=r"vocab=17.*index out of range.*task.model_options"):
        fit(toy(), successor(vocab=17, length=101), 1, **QUIET)
    small = toy(vocab=17, tie=False)
    small.head = nn.Linear(5, 11)
    with pytest.raises(ValueError, match=r"17 different targets .* distinguishes only 11"):
        fit(small, successor(vocab=17, length=3), 1, **QUIET)


def test_a_model_of_another_kind(toy, successor):
    with pytest.raises(ValueError, match=r"targets of shape \(1, 7\).*returned \(1, 13\)"):
        fit(toy(classes=13, tie=False), successor(), 1, **QUIET)
    with pytest.raises(ValueError, match="unexpected keyword argument 'source'"):
        fit(HuggingFaceLike(13, 13), successor(with_source=True), 1, **QUIET)


class Tuple(nn.Linear):
    def forward(self, inputs, padding=None):
        return (super().forward(F.one_hot(inputs, 13).float()),)


def test_a_model_that_returns_no_tensor(successor):
    with pytest.raises(ValueError, match="should return logits, a tensor; it returned a tuple"):
        fit(Tuple(13, 13), successor(), 1, **QUIET)
    with pytest.raises(TypeError, match="it returned a tuple"):
        evaluate(Tuple(13, 13), successor())


def test_an_empty_task(toy, successor):
    with pytest.raises(ValueError, match=r"'successor' is empty: asked for 1 row.*\(1, 0\)"):
        fit(toy(), successor(length=0), 1, **QUIET)
    with pytest.raises(TrainingError, match=r"Step 1: .* without one scored target"):
        fit(toy(), successor(scored=False), 1, **QUIET)
    with pytest.raises(ValueError, match="Not one target of these batches is scored"):
        evaluate(toy(), successor(scored=False))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batches": 0}, "batches should be"),
        ({"batch_size": 0}, "batch_size should be"),
        ({"precision": "int8"}, "precision should be"),
    ],
)
def test_evaluate_refuses(toy, successor, options, words):
    with pytest.raises(ValueError, match=words):
        evaluate(toy(), successor(), **options)


@pytest.mark.gpu
def test_on_an_accelerator(toy, successor, tmp_path):
    """Trains, saves and resumes there, and follows the CPU."""
    if not torch.accelerator.is_available():
        pytest.skip("there is no accelerator here")
    device = torch.accelerator.current_accelerator().type
    options = {"batch_size": 6, "accumulate": 2, "device": device, **QUIET}
    assert losses(toy(), successor(), 7, **options) == pytest.approx(
        losses(toy(), successor(), 7, **options | {"device": "cpu"}), rel=1e-3
    )
    unbroken = losses(toy(dropout=0.4), successor(), 7, **options)
    stop = [lambda state: state.step < 3]
    fit(toy(dropout=0.4), successor(), 7, folder=tmp_path, callbacks=stop, **options)
    again = toy(dropout=0.4, seed=5)
    assert losses(again, successor(), 7, folder=tmp_path, **options) == unbroken


def test_a_task_by_name_is_refused(toy):
    with pytest.raises(TypeError, match=r"task should be a task.*'copying' was given"):
        fit(toy(), "copying", 2, **QUIET)
