"""Processes of a run that die, hang, fail or never come: a sentence says who, within the limit,
and no hang."""

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

LIMIT = 8

PROGRAM = """
import os, signal, time
how, out = sys.argv[1:3]
rank = int(os.environ["RANK"])

class Late(ToyTask):
    calls = []
    def batch(self, split, size, seed):
        self.calls.append(size)
        if rank == 1 and size > 1 and len(self.calls) > 6:
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hangs":
                time.sleep(600)
            if how == "fails":
                raise KeyError("no such row")
        return super().batch(split, size, seed)

try:
    fit(ToyModel(), Late(), 40, batch_size=3, device="cpu", progress=False, limit={limit},
        sharded=how == "hangs in shares")
    said = "nothing"
except Exception as error:
    said = f"{type(error).__name__}: {error}"
with open(f"{out}/{rank}", "w") as file:
    file.write(said)
os._exit(0)
"""

PARTING = """
import os
how, out = sys.argv[1:3]
rank = int(os.environ["RANK"])

class Parting(ToyModel):
    seen = 0
    def forward(self, inputs, padding=None):
        self.seen += 1
        layers = list(self.layers)
        if rank == 1 and self.training and self.seen > 4:
            layers = layers[:1] if "fewer" in how else layers[::-1]
        x = self.embedding(inputs)
        for layer in layers:
            x = layer(x)
        return self.head(x)

model = Parting()
if how == "other sizes":
    model.layers[1] = torch.nn.Linear(5, 5)
if "kept whole" in how:  # as layers with a matrix in common are
    model.layers[1].up.weight = model.layers[0].up.weight
before = {name: value.clone() for name, value in model.state_dict().items()}
try:
    fit(model, ToyTask(), 40, batch_size=3, device="cpu", progress=False, limit={limit},
        sharded=True)
    said = "nothing"
except Exception as error:
    said = f"{type(error).__name__}: {error}"
if how == "another order":
    assert all(value.shape == before[name].shape for name, value in model.state_dict().items())
with open(f"{out}/{rank}", "w") as file:
    file.write(said)
os._exit(0)
"""


@pytest.fixture
def started(script, tmp_path: Path):
    """What each of two processes ended with, without a launcher that would end them itself."""
    running: list[subprocess.Popen[bytes]] = []

    def start(how: str, ranks: tuple[int, ...] = (0, 1), program: str = PROGRAM) -> dict[int, str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = script(program.replace("{limit}", str(LIMIT)))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for rank in ranks:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
            running.append(
                subprocess.Popen(
                    [*command, how, str(tmp_path)], env={**os.environ, **shared, **own}
                )
            )
        ends = time.monotonic() + 300
        while running[0].poll() is None or (program is PARTING and running[1].poll() is None):
            assert time.monotonic() < ends, "a process hangs"
            time.sleep(0.1)
        return {rank: path.read_text() for rank in ranks if (path := tmp_path / str(rank)).exists()}

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("dies", r"process 1 did not come; process 1 was last at step \d+ "),
        ("hangs", r"process 1 did not come; process 1 was last at step \d+ "),
        ("fails", r"process 1 was last at step \d+ and stopped: KeyError: 'no such row'"),
    ],
)
def test_who_is_missing_is_named(how, words, started):
    said = started(how)[0]
    assert re.match(
        rf"ProcessesError: Process 0 of 2 lost the others at step \d+, where it waits {LIMIT} s at "
        rf"most: .*{words}",
        said,
    ), said


@pytest.mark.slow
def test_a_process_that_never_comes(started):
    said = started("never", ranks=(0,))[0]
    assert re.match(
        rf"ProcessesError: Process 0 of 2 could not connect with the others within limit={LIMIT} s "
        r"\(.*\); start all of them by torchrun",
        said,
    ), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("another order", "number 1 is 'layers.0' in process 0 and 'layers.1' in process 1"),
        ("other sizes", "number 1 is 'layers.0' in process 0 and 'layers.1' in process 1"),
        ("fewer", "number 2 is 'layers.1' in process 0 and the backward pass in process 1"),
        (
            "fewer that are kept whole",
            "number 1 is the backward pass through 'layers.0', 'layers.1' in process 0 and the "
            "backward pass through 'layers.0' in process 1",
        ),
    ],
)
def test_processes_that_call_different_layers(how, words, started):
    """In another order shares of different layers would be put together without an error; of other
    sizes, gloo ends one process, and the other one tells."""
    said = started(how, program=PARTING)
    assert said
    assert how != "another order" or len(said) == 2
    for told in said.values():
        assert re.match(
            rf"ProcessesError: The 2 processes call different layers at step \d+: {words}; all",
            told,
        ), said


@pytest.mark.slow
def test_layers_that_are_kept_whole_may_be_called_in_another_order(started):
    assert started("kept whole", program=PARTING) == {0: "nothing", 1: "nothing"}
