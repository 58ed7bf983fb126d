"""What one of several processes needs of the others: exchanges that are counted and never hang.

Before each exchange a process writes into a store that all can read which exchange it is at. If an
exchange fails or its time is up, the processes that have not come so far are found there, and the
error names them; PyTorch's own error names a socket.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store

from attnlab.core.arguments import check_positive
from attnlab.parallel.errors import ProcessesError

LIMIT = 30.0
"""Seconds that an exchange may take, unless another limit is given."""


class Sent(NamedTuple):
    """Something that this process has sent to others."""

    what: str
    numbers: int
    bytes: int


class Event(NamedTuple):
    """What this process did between two moments, in seconds of a clock that all processes share."""

    kind: str  # "work" or "wait"
    what: str
    start: float
    end: float


class Group:
    """The processes of one job, as one of them sees them.

    rank, size: which process this is, from 0, and how many there are.
    limit: seconds that an exchange may take before the error says who is missing.
    sent: everything that this process has sent, in order.
    events: when it worked and when it waited for another one, in order.
    """

    def __init__(self, store: Store, rank: int, size: int, limit: float = LIMIT) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.limit = check_positive("limit", limit)
        self.sent: list[Sent] = []
        self.events: list[Event] = []
        self._exchanges = self._agreements = 0

    # ---- exchanges

    def shift(self, tensors: Sequence[Tensor], what: str) -> "Shift":
        """Start to send tensors to the next process of the ring and to receive those of the one
        before, of equal shapes; ``Shift.wait`` gives them."""
        following, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        given = [x.contiguous() for x in tensors]
        came = [torch.empty_like(x) for x in given]
        with self._exchange(what):
            works = [dist.isend(x, following, tag=tag) for tag, x in enumerate(given)]
            works += [dist.irecv(x, before, tag=tag) for tag, x in enumerate(came)]
        self._count(what, *given)
        return Shift(self, what, given, came, works)

    def swap(self, tensors: Sequence[Tensor], partner: int, what: str) -> list[Tensor]:
        """Give tensors to one process and take those of equal shapes that it gives."""
        given = [x.contiguous() for x in tensors]
        came = [torch.empty_like(x) for x in given]
        with self._exchange(what, waits=True):
            works = [dist.isend(x, partner, tag=tag) for tag, x in enumerate(given)]
            works += [dist.irecv(x, partner, tag=tag) for tag, x in enumerate(came)]
            _finish(works)
        self._count(what, *given)
        return came

    def send(self, tensors: Sequence[Tensor], to: int, what: str) -> None:
        """Give tensors to one process, which receives them."""
        given = [x.contiguous() for x in tensors]
        with self._exchange(what, waits=True):
            _finish([dist.isend(x, to, tag=tag) for tag, x in enumerate(given)])
        self._count(what, *given)

    def receive(self, like: Sequence[Tensor], source: int, what: str) -> list[Tensor]:
        """Take tensors, of the shapes of ``like``, that one process sends."""
        came = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in like]
        with self._exchange(what, waits=True):
            _finish([dist.irecv(x, source, tag=tag) for tag, x in enumerate(came)])
        return came

    def all_to_all(self, parts: Sequence[Tensor], what: str) -> list[Tensor]:
        """Give part i, one for each process and all of one shape, to process i; what all give to
        this one."""
        given = torch.stack(list(parts))
        came = torch.empty_like(given)
        with self._exchange(what, waits=True):
            dist.all_to_all_single(came, given)
        self._count(what, *(x for to, x in enumerate(parts) if to != self.rank))
        return list(came)

    def all_gather(self, x: Tensor, what: str) -> list[Tensor]:
        """The tensors of all processes, which travel once round the ring."""
        parts: dict[int, Tensor] = {self.rank: x}
        for step in range(1, self.size):
            (x,) = self.shift([x], what).wait()
            parts[(self.rank - step) % self.size] = x
        return [parts[rank] for rank in range(self.size)]

    def reduce_scatter(self, parts: Sequence[Tensor], what: str) -> Tensor:
        """The sum over all processes of the part with this process's number.

        The sum that a process ends with travels once round the ring; each process adds its own.
        """
        travelling = parts[(self.rank - 1) % self.size]
        for step in range(1, self.size):
            (came,) = self.shift([travelling], what).wait()
            travelling = came + parts[(self.rank - 1 - step) % self.size]
        return travelling

    def all_reduce(self, x: Tensor, what: str) -> Tensor:
        """The sum over all processes: a reduce-scatter and an all-gather.

        Each process sends 2 (P - 1) / P of the numbers of ``x``, filled up to a multiple of P.
        """
        flat = x.reshape(-1)
        short = -flat.numel() % self.size
        parts = torch.cat((flat, flat.new_zeros(short))).chunk(self.size)
        summed = torch.cat(self.all_gather(self.reduce_scatter(parts, what), what))
        return summed[: flat.numel()].view_as(x)

    # ---- agreement

    def agree(self, call: str) -> None:
        """Make sure that all processes are at the same call, with the same sizes.

        Raises ProcessesError if one asks for something else, or has not come within the limit.
        """
        number, self._agreements = self._agreements, self._agreements + 1
        keys = [f"agree/{number}/{rank}" for rank in range(self.size)]
        self.store.set(keys[self.rank], call)
        try:
            self.store.wait(keys, timedelta(seconds=self.limit))
        except RuntimeError:
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            raise ProcessesError(
                f"Process {self.rank} waited {self.limit:g} s at {call}, where "
                f"{self._named(missing)} did not come.{self._reasons(missing)}"
            ) from None
        calls = [self.store.get(key).decode() for key in keys]
        if number:
            self.store.delete_key(f"agree/{number - 1}/{self.rank}")
        for rank, other in enumerate(calls):
            if other != calls[0]:
                raise ProcessesError(
                    f"The {self.size} processes disagree: process 0 is at {calls[0]}, process "
                    f"{rank} at {other}; all should make the same call, with shards of one shape"
                )

    # ---- what is written down

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Write down from when to when this process computes."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.events.append(Event("work", what, start, time.monotonic()))

    def _count(self, what: str, *tensors: Tensor) -> None:
        numbers = sum(x.numel() for x in tensors)
        self.sent.append(Sent(what, numbers, sum(x.numel() * x.element_size() for x in tensors)))

    @contextmanager
    def _exchange(self, what: str, *, waits: bool = False) -> Iterator[None]:
        self._exchanges += 1
        self.store.set(f"at/{self.rank}", f"{self._exchanges} {what}")
        with self._explained(what, waits=waits):
            yield

    @contextmanager
    def _explained(self, what: str, *, waits: bool) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            raise self._error(what, time.monotonic() - start, error) from error
        if waits:
            self.events.append(Event("wait", what, start, time.monotonic()))

    def _error(self, what: str, seconds: float, error: RuntimeError) -> ProcessesError:
        places = [self._place(rank) for rank in range(self.size)]
        missing = [rank for rank, (number, _) in enumerate(places) if number < self._exchanges]
        if not missing:
            return ProcessesError(
                f"Process {self.rank} lost the connection after {seconds:.1f} s at {what}, which "
                f"all {self.size} processes reached ({str(error).splitlines()[0]})"
            )
        last = "; ".join(f"process {rank} was last at {places[rank][1]}" for rank in missing)
        return ProcessesError(
            f"Process {self.rank} waited {seconds:.1f} s at {what} (exchange {self._exchanges}), "
            f"where {self._named(missing)} did not come: {last}.{self._reasons(missing)}"
        )

    def _place(self, rank: int) -> tuple[int, str]:
        """The number and name of the exchange that a process is at."""
        key = f"at/{rank}"
        if not self.store.check([key]):
            return 0, "the beginning"
        number, _, what = self.store.get(key).decode().partition(" ")
        return int(number), what

    def _named(self, ranks: Sequence[int]) -> str:
        some = "process" if len(ranks) == 1 else "processes"
        return f"{some} {', '.join(map(str, ranks))} of {self.size}"

    def _reasons(self, ranks: Sequence[int]) -> str:
        """What processes said before they stopped."""
        said = ""
        for rank in ranks:
            if self.store.check([f"failed/{rank}"]):
                said += f" Process {rank} stopped: {self.store.get(f'failed/{rank}').decode()}."
        return said


class Shift:
    """Tensors on their way to the next process of the ring, and those of the one before."""

    def __init__(
        self, group: Group, what: str, given: list[Tensor], came: list[Tensor], works: list[Any]
    ) -> None:
        self.group, self.what, self.given, self.came, self.works = group, what, given, came, works

    def wait(self) -> list[Tensor]:
        with self.group._explained(self.what, waits=True):
            _finish(self.works)
        return self.came


def _finish(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def joined(limit: float = LIMIT) -> Group:
    """The group of the processes that ``torchrun`` has started, seen from this one.

    Call it before anything else starts PyTorch's process group. Raises ProcessesError outside
    ``torchrun``, or where the others do not come within ``limit`` seconds.
    """
    from torch.distributed.rendezvous import rendezvous

    wait = timedelta(seconds=check_positive("limit", limit))
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=wait)))
    except (RuntimeError, ValueError) as error:
        raise ProcessesError(
            f"This process is not one of several ({error}); start the script by torchrun, such as "
            "torchrun --nproc-per-node 4 script.py, or call attnlab.parallel.launch.in_processes"
        ) from error
    return connected(store, rank, size, limit)


def connected(store: Store, rank: int, size: int, limit: float) -> Group:
    """Connect this process with the others that know the store; gloo, so CPUs are enough."""
    wait = timedelta(seconds=limit)
    own = PrefixStore("attnlab", store)
    try:
        dist.init_process_group(
            "gloo", store=PrefixStore("gloo", store), rank=rank, world_size=size, timeout=wait
        )
    except RuntimeError as error:
        raise ProcessesError(
            f"Process {rank} of {size} could not connect with the others within {limit:g} s "
            f"({str(error).splitlines()[0]})"
        ) from error
    return Group(own, rank, size, limit)
