"""Run a sublayer again with the random numbers that it had the first time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states


class Settings(NamedTuple):
    """The states of the random generators and of autocast, under which a sublayer ran."""

    kind: str
    on_cpu: Tensor
    devices: list[int]
    on_devices: list[Tensor]
    autocast: tuple[bool, torch.dtype] | None

    @classmethod
    def now(cls, x: Tensor) -> "Settings":
        kind, autocast = x.device.type, None
        if torch.amp.is_autocast_available(kind):
            autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        return cls(kind, torch.get_rng_state(), *get_device_states(x), autocast)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Restores these states inside the block, and the caller's after it."""
        with ExitStack() as inside:
            if self.autocast is not None:
                enabled, dtype = self.autocast
                inside.enter_context(torch.autocast(self.kind, dtype=dtype, enabled=enabled))
            kind = self.kind if self.devices else "cuda"  # of no device
            inside.enter_context(torch.random.fork_rng(self.devices, device_type=kind))
            torch.set_rng_state(self.on_cpu)
            set_device_states(self.devices, self.on_devices, device_type=kind)
            yield
