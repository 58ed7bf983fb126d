"""Communication between the processes of one run.

Every exchange has a time limit. When it passes, or a connection breaks, each process that is left
says so in the store that all can read; those that do not are missing, and the error names them with
the place where they were last. A process that stops by an error of its own leaves its words there.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor

from attnlab.parallel.errors import ProcessesError
from attnlab.train.diagnose import Fault

_FAULT_BYTES = 1024
_ANSWER = 5.0  # seconds in which a process that is left says so
_WORDS = 200
_LOST = re.compile("gloo|nccl|c10d|timed? ?out|connection|socket|store", re.IGNORECASE)
"""What PyTorch's own errors of a broken or late exchange speak of."""
_runs = 0  # in this process; each has places of its own in the store


def _store(limit: float) -> Any:
    """What all processes can read, for this run; and every exchange gets its time limit."""
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout

    global _runs
    _runs += 1
    _set_pg_timeout(timedelta(seconds=limit))
    return PrefixStore(f"attnlab/fit/{_runs}", _get_default_store())


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_WORDS]


class Processes:
    """The processes of a run: how many, which one this is, and sums over all of them."""

    def __init__(self, accelerator: Accelerator, device: torch.device, limit: float) -> None:
        self.accelerator, self.device, self.limit = accelerator, device, limit
        self.count, self.rank = accelerator.num_processes, accelerator.process_index
        self.is_first = accelerator.is_main_process
        self.store = _store(limit) if self.count > 1 else None
        self.place = "the beginning"
        self.called: list[str] = []  # layers, in this step
        self.used: set[str] = set()  # layers that need not be gathered
        self.at(self.place)

    # --- who is missing ------------------------------------------------------------------------

    def at(self, place: str) -> None:
        """Say where this process is, for the errors of others."""
        self.place = place
        self.called.clear()
        self.used.clear()
        self._say("at", place)

    def call(self, layer: str) -> None:
        """Say which layer comes next, before it is gathered: gloo ends a process, without an error,
        that receives more than it asked for."""
        self.called.append(layer)
        if self.device.type == "cpu":
            self._say_called(len(self.called) - 1, layer)

    def use(self, layer: str) -> None:
        """Note a layer that is there already. Its calls exchange nothing, so their order plays no
        part; but its gradients are summed over the processes, all of which should have them."""
        self.used.add(layer)

    def call_backward(self) -> None:
        """Say that the backward pass comes next, and through which of the layers that are used."""
        through = f" through {', '.join(sorted(self.used))}" if self.used else ""
        self.call(f"the backward pass{through}")

    def _say_called(self, number: int, layer: str) -> None:
        """Each layer is said once, with the place, which tells it from those of earlier steps."""
        self._say(f"called/{number}", f"{self.place}\n{layer}")

    def _called_by(self, rank: int) -> list[str]:
        """The layers that a process has said to have called at this place."""
        called: list[str] = []
        while (said := self._said(f"called/{len(called)}", rank).partition("\n"))[0] == self.place:
            called.append(said[2])
        return called

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of a connection inside become a sentence that says who is missing."""
        try:
            yield
        except ProcessesError:  # says it already
            raise
        except RuntimeError as error:
            if self.store is None or not _LOST.search(str(error)):
                self._say("stopped", _words(error))
                raise
            raise self._missing(error) from error
        except Exception as error:
            self._say("stopped", _words(error))
            raise

    def _say(self, what: str, words: str) -> None:
        if self.store is not None:
            with suppress(RuntimeError):  # who keeps the store may be the one that is gone
                self.store.set(f"{what}/{self.rank}", words)

    def _said(self, what: str, rank: int) -> str:
        """What a process said; nothing if it did not."""
        with suppress(RuntimeError):
            if self.store is not None and self.store.check([f"{what}/{rank}"]):
                return str(self.store.get(f"{what}/{rank}").decode())
        return ""

    def _missing(self, error: RuntimeError) -> ProcessesError:
        """The error that names who does not answer within a few seconds, or stopped by itself; or
        the layers at which the processes part."""
        self._say("left", self.place)
        others = [rank for rank in range(self.count) if rank != self.rank]
        self._await("left", others)
        gone = [rank for rank in others if not self._said("left", rank)]
        words = self._parting() or self._lost(gone, others)
        self._say("read", words)
        if self.is_first:  # which may keep the store, so that it ends after the others have read
            self._await("read", [rank for rank in others if rank not in gone])
        return ProcessesError(f"{words} ({str(error).splitlines()[0][:_WORDS]})")

    def _await(self, what: str, ranks: Sequence[int]) -> None:
        """Wait some seconds at most until each of these processes has said it."""
        ends = time.monotonic() + min(self.limit, _ANSWER)
        while time.monotonic() < ends and not all(self._said(what, rank) for rank in ranks):
            time.sleep(0.05)

    def _lost(self, gone: Sequence[int], others: Sequence[int]) -> str:
        """Who did not come, and where each of them was last, as a sentence."""
        who = "none of the others is missing"
        if gone:
            some = "process" if len(gone) == 1 else "processes"
            who = f"{some} {', '.join(map(str, gone))} did not come"
        said = [
            f"process {rank} was last at {self._said('at', rank) or 'an unknown place'}"
            + (f" and stopped: {stopped}" if (stopped := self._said("stopped", rank)) else "")
            for rank in gone or others
        ]
        return (
            f"Process {self.rank} of {self.count} lost the others at {self.place}, where it waits "
            f"{self.limit:g} s at most: {who}; {'; '.join(said)}"
        )

    def _calls(self) -> list[list[str]]:
        """The layers that each process has called in this step; none where they are not at one."""
        if len({self._said("at", rank) for rank in range(self.count)}) > 1:
            return [[] for _ in range(self.count)]
        return [self._called_by(rank) for rank in range(self.count)]

    def _parting(self) -> str:
        """The first layer that is not the same in all processes, as a sentence; nothing where all
        call the same ones, as far as they have come."""
        for number, layers in enumerate(zip(*self._calls(), strict=False), 1):
            for rank, layer in enumerate(layers):
                if layer != layers[0]:
                    return (
                        f"The {self.count} processes call different layers at {self.place}: number "
                        f"{number} is {layers[0]} in process 0 and {layer} in process {rank}; all "
                        "should call the same layers in one order, so what chooses among layers "
                        "should not depend on the process or its rows"
                    )
        return ""

    def check_called(self) -> None:
        """Raise ProcessesError, in all processes, where they did not call the same layers."""
        layers = [*self.called, "no further one"]
        digest = int.from_bytes(sha256("\n".join(layers).encode()).digest()[:7])
        if len(set(self.gathered(torch.tensor([digest])).tolist())) > 1:
            for number, layer in enumerate(layers):
                self._say_called(number, layer)
            self.wait()
            raise ProcessesError(self._parting())

    # --- exchanges -----------------------------------------------------------------------------

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
