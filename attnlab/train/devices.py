"""The device of a run, and Accelerate's connection to the other processes."""

import os
from contextlib import suppress
from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

from attnlab.parallel.errors import ProcessesError
from attnlab.train.checks import shown


def make_accelerator(device: str | torch.device | None, limit: float) -> Accelerator:
    """One Accelerate state is shared by every `fit` of a process, so it holds no varying settings.

    Precision is `fit`'s own autocast. `cpu` matters only to launched processes: without it
    Accelerate does not connect CPU processes, and each would train alone. Raises ProcessesError
    where launched processes do not come together within ``limit`` seconds.
    """
    wanted = None if device is None else parsed(device)
    on_cpu = not torch.accelerator.is_available() or (wanted is not None and wanted.type == "cpu")
    launched = "LOCAL_RANK" in os.environ
    waits = InitProcessGroupKwargs(timeout=timedelta(seconds=limit))
    try:
        return Accelerator(
            cpu=launched and on_cpu, mixed_precision="no", kwargs_handlers=[waits] * launched
        )
    except RuntimeError as error:
        if not launched:
            raise
        ranks = [os.environ.get(name, "?") for name in ("RANK", "WORLD_SIZE")]
        raise ProcessesError(
            f"Process {ranks[0]} of {ranks[1]} could not connect with the others within "
            f"limit={limit:g} s ({str(error).splitlines()[0]}); start all of them by torchrun, or "
            "give a longer limit"
        ) from error
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
