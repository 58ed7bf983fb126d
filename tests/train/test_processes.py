"""Two processes under `accelerate launch` or `torchrun` are one process with twice the batch."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attnlab.train import processes

LAUNCHERS = {
    "accelerate": "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--mixed_precision no --dynamo_backend no --main_process_port 0",
    "torchrun": "torch.distributed.run --standalone --nproc-per-node 2",
}
WAYS = [("accelerate", False), ("torchrun", False), ("torchrun", True)]


def launched(launcher: str, command: list[str]) -> list[str]:
    return [command[0], "-m", *LAUNCHERS[launcher].split(), *command[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "sharded"), WAYS)
def test_two_processes_match_the_doubled_batch(
    launcher, sharded, script, run, toy, successor, weights, tmp_path: Path
):
    """Rows with very unequal numbers of scored targets: a mean of the two means would be off."""
    import attnlab.train

    program = script(
        """
        import json
        from accelerate import PartialState
        from attnlab.train import TrainingError, load_checkpoint
        out, sharded = sys.argv[1], sys.argv[2] == "True"
        options = dict(batch_size=6, accumulate=2, evaluate_every=5, seed=3,
                       device="cpu", folder=out + "/ck", sharded=sharded)

        seen = []
        look = lambda state: seen.append(state.step)
        rows = fit(ToyModel(), ToyTask(), 5, callbacks=[look], **options).rows
        model = ToyModel(seed=1)
        rows = fit(model, ToyTask(), 7, **options).rows
        weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
        options = dict(batch_size=3, device="cpu", sharded=sharded)
        state = PartialState()
        assert state.num_processes == 2
        stopping = [lambda s: s.step < 2]
        stopped = fit(ToyModel(), ToyTask(), 5, callbacks=stopping, **options).rows

        # Only the second process meets the NaN; both must stop, with the same sentence.
        model = ToyModel()
        if state.process_index == 1:
            spoil = lambda module, inputs, out: out * float("nan") if module.training else out
            model.layers[1].up.register_forward_hook(spoil)
        try:
            fit(model, ToyTask(), 5, **options)
            message = "no error"
        except TrainingError as error:
            message = f"{error.step} {error.layer} {error}"
        assert model.head.weight.shape == (13, 5)  # whole, and as it was
        assert torch.equal(model.head.weight, ToyModel().head.weight)

        class Local(ToyTask):
            "Draws other rows in each process, from the row that is tried on, or only later."
            def __init__(self, least):
                object.__setattr__(self, "least", least)
            def batch(self, split, size, seed):
                late = size >= self.least
                return super().batch(split, size, seed + late * state.process_index)

        refused = []
        for least in (1, 2):
            try:
                fit(ToyModel(), Local(least), 2, **options)
            except ValueError as error:
                refused.append(str(error))
        with open(f"{out}/{state.process_index}.json", "w") as file:
            json.dump([rows, stopped, message, seen, refused, weights], file)
        state.destroy_process_group()
        # PyTorch's threads may still run when the interpreter tears down, which aborts it.
        import os
        os._exit(0)
        """
    )
    run([*launched(launcher, program), str(tmp_path), str(sharded)])
    (rows, stopped, message, seen, refused, ended), other = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)
    )
    model = toy()
    steps = {"batch_size": 12, "accumulate": 1, "evaluate_every": 5, "seed": 3}
    alone = attnlab.train.fit(model, successor(), 5, folder=tmp_path / "alone", **steps).rows
    alone = attnlab.train.fit(model, successor(), 7, folder=tmp_path / "alone", **steps).rows
    for column in ("loss", "gradient_norm", "learning_rate", "tokens"):
        assert [row[column] for row in rows] == pytest.approx(
            [row[column] for row in alone], rel=1e-5
        )
    for name, tensor in weights(model).items():
        torch.testing.assert_close(torch.tensor(ended[name]), tensor, rtol=1e-4, atol=1e-6)
    assert other[5] == ended
    # Each process scores half of the validation batches, of 6 rows here and of 12 there.
    assert [row["step"] for row in rows if "validation_loss" in row] == [5, 7]
    assert seen == [1, 2, 3, 4, 5]
    assert other[3] == []
    assert len(stopped) == len(other[1]) == 2
    for output in (message, other[2]):
        assert output.startswith("1 layers.1.up ")
        assert "step 1 of 5" in output
    assert [{**r, "tokens_per_second": 0} for r in rows] == [
        {**r, "tokens_per_second": 0} for r in other[0]
    ]
    for first, later in (refused, other[4]):
        assert "The 2 processes drew different rows of task 'successor' for one seed" in first
        assert "every process should draw the same batch for the same seed" in later
    # A checkpoint of two processes fits one process with the same whole batch.
    model = toy(seed=5)
    again = attnlab.train.fit(model, successor(), 7, folder=tmp_path / "ck", **steps).rows
    assert again == rows


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_killed_under_torchrun_and_resumed_by_one_two_and_one(
    sharded, script, run, toy, successor, tmp_path: Path
):
    """One process begins, the first of two is killed, two go on, and one ends the run: all as if
    one process had never been interrupted."""
    import attnlab.train

    program = script(
        """
        import json, os, signal
        from accelerate import PartialState
        folder, last, fatal = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        options = dict(batch_size=6, accumulate=1, seed=3, save_every=1, device="cpu",
                       folder=folder, sharded=sys.argv[4] == "True")

        def kill(state):
            if state.step == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return state.step < last

        fit(ToyModel(seed=9), ToyTask(), 9, callbacks=[kill], **options)
        state = PartialState()
        assert state.num_processes == 2
        state.wait_for_everyone()
        state.destroy_process_group()
        os._exit(0)
        """
    )
    options = {"batch_size": 12, "seed": 3}
    unbroken = attnlab.train.fit(
        toy(), successor(), 9, folder=tmp_path / "unbroken", **options
    ).rows
    folder = tmp_path / "shared"
    stop = {"callbacks": [lambda state: state.step < 3]}
    attnlab.train.fit(toy(), successor(), 9, folder=folder, save_every=1, **options, **stop)
    two = launched("torchrun", program)
    killed = subprocess.run(
        [*two, str(folder), "7", "5", str(sharded)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert killed.returncode != 0
    assert sharded or "SIGKILL" in killed.stderr  # else the other may be the first to end
    assert attnlab.train.load_checkpoint(folder).step in (4, 5)
    run([*two, str(folder), "7", "0", str(sharded)])
    assert attnlab.train.load_checkpoint(folder).step == 7
    rows = attnlab.train.fit(
        toy(seed=5), successor(), 9, folder=folder, save_every=1, **options
    ).rows
    assert [row["step"] for row in rows] == list(range(1, 10))
    for column in ("loss", "gradient_norm"):
        assert [row[column] for row in rows] == pytest.approx(
            [row[column] for row in unbroken], rel=1e-5
        )


class Store(dict):
    """What processes have said, and how many letters it took."""

    letters = 0

    def set(self, key, words):
        self[key] = words.encode()
        self.letters += len(words)

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key):
        return self[key]


@pytest.fixture
def two(monkeypatch):
    """Two processes with one store, here in one."""
    store = Store()
    monkeypatch.setattr(processes, "_store", lambda limit: store)
    return [
        processes.Processes(
            SimpleNamespace(num_processes=2, process_index=rank, is_main_process=not rank),
            torch.device("cpu"),
            8.0,
        )
        for rank in (0, 1)
    ]


def test_each_call_of_a_layer_is_said_once(two):
    """All calls said again at each of them would take letters as the square of their number."""
    said = []
    for calls in (100, 200):
        two[0].at(f"step {calls}")
        before = two[0].store.letters
        for number in range(calls):
            two[0].call(f"'layers.{number % 10}'")
        said.append(two[0].store.letters - before)
    assert said[1] == 2 * said[0]


def test_where_two_processes_part(two):
    """What they called in earlier steps, or have not come to yet, is no difference."""
    first, second = two
    for step, calls, parting in (
        (1, ("abc", "abc"), ""),
        (2, ("ab", "a"), ""),
        (3, ("", ""), ""),
        (4, ("ab", "acb"), "number 2 is b in process 0 and c in process 1"),
    ):
        for process, layers in zip(two, calls, strict=True):
            process.at(f"step {step}")
            for layer in layers:
                process.call(layer)
        assert parting in first._parting()
        assert first._parting() == second._parting()
        assert bool(parting) == bool(first._parting())
    for process, layers in zip(two, ("ab", "ba"), strict=True):
        process.at("step 5")
        for layer in layers:
            process.use(layer)
        process.call_backward()
    assert first._parting() == ""  # the order plays no part
    second.use("c")
    for process in two:
        process.call_backward()
    assert (
        "number 2 is the backward pass through a, b in process 0 and the backward pass through "
        "a, b, c in process 1"
    ) in first._parting()
    second.at("the callbacks of step 5")
    assert first._parting() == ""
