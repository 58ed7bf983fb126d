"""The device of a run, and Accelerate's connection to the other processes."""

import os
from contextlib import suppress

import torch
from accelerate import Accelerator

from attnlab.train.checks import shown


def make_accelerator(device: str | torch.device | None) -> Accelerator:
    """One Accelerate state is shared by every `fit` of a process, so it holds no varying settings.

    Precision is `fit`'s own autocast. `cpu` matters only to launched processes: without it
    Accelerate does not connect CPU processes, and each would train alone.
    """
    wanted = None if device is None else parsed(device)
    on_cpu = not torch.accelerator.is_available() or (wanted is not None and wanted.type == "cpu")
    try:
        return Accelerator(cpu="LOCAL_RANK" in os.environ and on_cpu, mixed_precision="no")
    except ValueError as error:
        raise RuntimeError(
            "An Accelerator with another precision or device already lives in this process and "
            f"cannot be changed ({error}); restart Python and let attnlab.train.fit make its own"
        ) from error


def chosen_device(device: str | torch.device | None, accelerator: Accelerator) -> torch.device:
    if device is None:
        return torch.device(accelerator.device)
    wanted = parsed(device)
    if not available(wanted):
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        choice = "'cpu'" if here is None else f"'cpu' and '{here.type}'"
        raise ValueError(f"device '{wanted}' is not available here; this machine has {choice}")
    if accelerator.num_processes == 1:
        return wanted
    if wanted.index is not None or wanted.type != accelerator.device.type:
        raise ValueError(
            f"device='{device}' cannot be honoured: this is one of {accelerator.num_processes} "
            f"processes and the launcher gave it '{accelerator.device}'; leave device=None"
        )
    return torch.device(accelerator.device)


def parsed(device: object) -> torch.device:
    if isinstance(device, str | torch.device):
        with suppress(RuntimeError):
            return torch.device(device)
    raise ValueError(
        "device should be a name PyTorch knows, such as 'cpu', 'cuda', 'cuda:1' or 'mps'; "
        f"{shown(device)} was given"
    )


def available(device: torch.device) -> bool:
    if device.type == "cpu":
        return True
    if not torch.accelerator.is_available():
        return False
    current = torch.accelerator.current_accelerator()
    kinds = current is not None and current.type == device.type
    return kinds and (device.index or 0) < torch.accelerator.device_count()
