"""Seeds derived from seeds, and the states of random generators as tensors."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derived_seed(*parts: int | str) -> int:
    """A 32-bit seed that depends on every part: the same for the same parts, on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that dropout on `device` draws from, as bytes on the CPU."""
    states = {"cpu": torch.get_rng_state()}
    if device.type in ("cuda", "xpu"):
        states[device.type] = torch.get_device_module(device).get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_generator_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type in ("cuda", "xpu"):
        torch.get_device_module(device).set_rng_state(states[device.type], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def preserved_generators(device: torch.device) -> Iterator[None]:
    """Restores the generators afterwards, whatever was drawn or seeded inside."""
    states = generator_states(device)
    try:
        yield
    finally:
        set_generator_states(states, device)
