"""Everything runs on any device: proved on a pretend one, where no GPU is at hand.

The device (``tests/second_device.py``) stays registered for the life of a process, so each worker
has a process beside it that runs the cases of its tests, one when it is asked for.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.utils.backend_registration as backend_registration

from tests.second_device_cases import cases

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch cannot pretend to have a second device",
)


class Process:
    """Runs one case after the other, as a worker's tests ask for them; begun anew if it ends."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self.running: subprocess.Popen[str] | None = None

    def fault(self, name: str) -> str:
        """What is wrong with a case; "" where nothing is."""
        self.running = self.running or self._begun()
        assert self.running.stdin
        assert self.running.stdout
        answer = ""
        try:
            print(json.dumps(name), file=self.running.stdin, flush=True)
            answer = self.running.stdout.readline()
        except BrokenPipeError:
            pass
        finally:  # also where the time of the test is up
            if not answer:
                self.end()
        if not answer:
            return f"the process of the pretend device died: {self.errors.read_text()[-3000:]}"
        asked, fault = json.loads(answer)
        assert asked == name
        return fault

    def _begun(self) -> "subprocess.Popen[str]":
        paths = [str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")]
        with self.errors.open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.second_device_cases"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def end(self) -> None:
        if self.running:
            self.running.kill()
            self.running.communicate()
            self.running = None


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("second_device") / "errors.txt")
    yield process
    process.end()


@pytest.mark.parametrize("name", cases())
def test_runs_on_a_second_device(name: str, process: Process) -> None:
    fault = process.fault(name)
    assert not fault, f"{name}\n{fault}"
