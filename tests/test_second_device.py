"""Everything runs on any device: proved on a pretend one, where no GPU is at hand.

The device (``tests/second_device.py``) stays registered for the life of a process, so a process of
its own runs all cases, once, and each test looks up what became of one of them.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.utils.backend_registration as backend_registration

from tests.second_device_cases import cases

ROOT = Path(__file__).parents[1]
SECONDS = 600

pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch cannot pretend to have a second device",
)


def run() -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.second_device_cases"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        return json.dumps(["", f"the process of the pretend device died: {done.stderr[-3000:]}"])
    return done.stdout


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is wrong with each case. Of several workers the first runs them, for all."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    result = shared / "second_device.jsonl"
    try:
        (shared / "second_device.taken").touch(exist_ok=False)
    except FileExistsError:
        until = time.monotonic() + SECONDS
        while not result.exists() and time.monotonic() < until:
            time.sleep(0.2)
    else:
        draft = shared / "second_device.draft"
        draft.write_text(run())
        draft.rename(result)
    return dict(map(json.loads, result.read_text().splitlines()))


@pytest.mark.parametrize("name", cases())
def test_runs_on_a_second_device(name: str, faults: dict[str, str]) -> None:
    fault = faults.get(name, faults.get("", "the case was not run"))
    assert not fault, f"{name}\n{fault}"
