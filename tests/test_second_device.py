"""Everything runs on any device: proved on a pretend one, where no GPU is at hand.

The device (``tests/second_device.py``) stays registered for the life of a process, so processes
of their own run all cases, once, and each test looks up what became of one of them.
"""

import contextlib
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


PARTS = 2  # of two workers none waits while the other one runs all cases


def run(names: list[str]) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.second_device_cases"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        input=json.dumps(names),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        died = f"the process of the pretend device died: {done.stderr[-3000:]}"
        return "\n".join(json.dumps([name, died]) for name in names)
    return done.stdout


@pytest.fixture(scope="session")
def faults(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What is wrong with each case. A worker runs the parts that no other has begun."""
    mine = [item for item in request.session.items if item.path == Path(__file__)]
    names = [item.callspec.params["name"] for item in mine]
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    results = [shared / f"second_device.{part}" for part in range(PARTS)]
    for part, result in enumerate(results):
        with contextlib.suppress(FileExistsError):
            result.with_suffix(f".taken{part}").touch(exist_ok=False)
            draft = result.with_suffix(f".draft{part}")
            draft.write_text(run(names[part::PARTS]))
            draft.rename(result)
    until = time.monotonic() + SECONDS
    while not all(result.exists() for result in results) and time.monotonic() < until:
        time.sleep(0.2)
    lines = [line for each in results if each.exists() for line in each.read_text().splitlines()]
    return dict(map(json.loads, lines))


@pytest.mark.parametrize("name", cases())
def test_runs_on_a_second_device(name: str, faults: dict[str, str]) -> None:
    fault = faults.get(name, "the case was not run")
    assert not fault, f"{name}\n{fault}"
