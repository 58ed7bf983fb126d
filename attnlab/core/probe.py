"""Recording intermediate quantities of a form, without changing any module.

A form notes a quantity that a reader may want to see: ``weights = note("weights", weights)``.
``note`` is the identity: it returns its value. Only inside ``with record() as notes:`` is the value
kept, in ``notes`` and nowhere else; modules stay as they were. A value that is expensive to compute
is given as a callable, ``note("weights", lambda: ...)``, which runs only inside a ``record`` block.

A layer that moves its tokens before it computes says by ``restoring`` how to move back what is
noted meanwhile, so that a reader finds every quantity at the positions of the layer's input.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch._C import _functorch as functorch

T = TypeVar("T")


class Notes:
    """What was noted, in order. ``notes["weights"]`` lists the values noted under that name."""

    def __init__(self) -> None:
        self._items: list[tuple[str, Any]] = []

    def add(self, name: str, value: Any) -> None:
        if vmapped(value):
            raise ValueError(
                f"{name} cannot be recorded inside torch.func.vmap, whose tensors do not outlast "
                "it; call the form on the whole batch, or record without vmap"
            )
        self._items.append((name, value))

    def names(self) -> list[str]:
        """Each name once, in the order of first appearance."""
        return list(dict.fromkeys(name for name, _ in self._items))

    def last(self, name: str, default: Any = None) -> Any:
        """The newest value under ``name``, or ``default``."""
        return next((value for key, value in reversed(self._items) if key == name), default)

    def __getitem__(self, name: str) -> list[Any]:
        found = [value for key, value in self._items if key == name]
        if not found:
            known = ", ".join(self.names()) or "nothing"
            raise KeyError(f"no note is called {name!r}; noted were: {known}")
        return found

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._items)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def vmapped(value: Any) -> bool:
    """Whether a tensor is one row of a batch that ``torch.func.vmap`` hides."""
    while isinstance(value, torch.Tensor) and functorch.is_functorch_wrapped_tensor(value):
        if functorch.is_batchedtensor(value):
            return True
        value = functorch.get_unwrapped(value)
    return False


class _Block:
    """One ``record()`` block; it has no notes any more once it has ended, wherever it ended."""

    __slots__ = ("notes",)

    def __init__(self, notes: Notes) -> None:
        self.notes: Notes | None = notes


_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("attnlab_recordings", default=())


def _open_notes() -> list[Notes]:
    return [notes for block in _blocks.get() if (notes := block.notes) is not None]


def listening() -> bool:
    """Whether a ``record`` block is open; never while ``torch.compile`` traces a graph."""
    return not torch.compiler.is_compiling() and bool(_blocks.get()) and bool(_open_notes())


def recording(notes: Notes) -> bool:
    """Whether ``notes`` keeps what is noted here, in this thread and asyncio task."""
    return any(each is notes for each in _open_notes())


Restore = Callable[[str, Any], Any]
_restore: ContextVar[Restore] = ContextVar("attnlab_restore", default=lambda _, value: value)


@contextmanager
def restoring(restore: Restore) -> Iterator[None]:
    """What is noted inside is kept as ``restore(name, value)``."""
    token = _restore.set(restore)
    try:
        yield
    finally:
        _restore.reset(token)


@contextmanager
def unheard() -> Iterator[None]:
    """What is noted inside is not kept: the notes of a part that are not those of the whole."""
    token = _blocks.set(())
    try:
        yield
    finally:
        _blocks.reset(token)


def restore() -> Restore:
    """How what is noted here and now is brought back to the positions of the layer's input."""
    return _restore.get()


def note(name: str, value: T) -> T:
    """Return ``value``; inside a ``record`` block, also keep it under ``name``.

    If ``value`` is callable, its result is kept.
    """
    if listening():
        kept = _restore.get()(name, value() if callable(value) else value)
        for notes in _open_notes():
            notes.add(name, kept)
    return value


def record(notes: Notes | None = None) -> AbstractContextManager[Notes]:
    """Keep what is noted inside the block: in its thread, its asyncio task and the tasks that it
    starts.

    Blocks may nest or overlap, and may be closed in any order and in any thread; each keeps all
    that is noted while it is open. ``notes`` may be one's own ``Notes``, to act on a note when it
    is made.
    """
    if notes is not None and not isinstance(notes, Notes):
        raise TypeError(f"record keeps notes in a Notes, got {type(notes).__name__}")
    return _recording(Notes() if notes is None else notes)


@contextmanager
def _recording(notes: Notes) -> Iterator[Notes]:
    block = _Block(notes)
    _blocks.set((*(each for each in _blocks.get() if each.notes is not None), block))
    try:
        yield notes
    finally:
        block.notes = None
        _blocks.set(tuple(each for each in _blocks.get() if each.notes is not None))
