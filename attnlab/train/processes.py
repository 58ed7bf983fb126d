"""Communication between the processes of one run."""

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor

from attnlab.train.diagnose import Fault

_FAULT_BYTES = 1024


class Processes:
    """The processes of a run: how many, which one this is, and sums over all of them."""

    def __init__(self, accelerator: Accelerator, device: torch.device) -> None:
        self.accelerator, self.device = accelerator, device
        self.count, self.rank = accelerator.num_processes, accelerator.process_index
        self.is_first = accelerator.is_main_process

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Every process gets the values of the first one, in one exchange of bytes."""
        if not tensors:
            return
        parts = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]
        joined = broadcast(torch.cat(parts))
        for tensor, part in zip(tensors, joined.split([len(p) for p in parts]), strict=True):
            tensor.detach().copy_(part.clone().view(tensor.dtype).view_as(tensor))

    def summed(self, value: Tensor) -> Tensor:
        total: Tensor = self.accelerator.reduce(value, "sum")
        return total

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of all processes, one after the other, on the CPU."""
        if self.count == 1:
            return rows
        gathered: Tensor = self.accelerator.gather(rows.to(self.device))
        return gathered.cpu()

    def agreed(self, fault: Fault | None) -> Fault | None:
        """The fault of the first process that has one, sent to all as bytes."""
        text = b"" if fault is None else "\n".join(fault).encode()[:_FAULT_BYTES]
        letters = torch.zeros(1, _FAULT_BYTES, dtype=torch.uint8)
        letters[0, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        for row in self.gathered(letters).tolist():
            layer, found, description = (
                bytes(row).rstrip(b"\0").decode(errors="ignore").partition("\n")
            )
            if found:
                return Fault(layer, description)
        return None
