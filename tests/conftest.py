"""What every test stands on: one seed, one thread (workers share the cores), the accelerator."""

import os

import pytest
import torch

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def accelerator() -> torch.device:
    """The GPU; the test is skipped where there is none."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        pytest.skip("no accelerator on this machine")
    return device
