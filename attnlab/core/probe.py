"""Seeing inside without leaving anything behind.

A form says what a reader may want to see, ``weights = note("weights", weights)``, without knowing
who looks. ``note`` is the identity: it hands its value back. Only inside ``with record() as
notes:`` is the value kept, in ``notes`` and nowhere else; modules stay as they were. A value that
costs something is given as a callable, ``note("weights", lambda: ...)``, and is computed only when
somebody records.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Notes:
    """What was noted, in order. ``notes["weights"]`` lists the values noted under that name."""

    def __init__(self) -> None:
        self._items: list[tuple[str, Any]] = []

    def add(self, name: str, value: Any) -> None:
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
            heard = ", ".join(self.names()) or "nothing"
            raise KeyError(f"no note is called {name!r}; noted were: {heard}")
        return found

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._items)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


_listeners: ContextVar[tuple[Notes, ...]] = ContextVar("attnlab_listeners", default=())


def listening() -> bool:
    """Whether somebody records now. Never while ``torch.compile`` traces: graphs tell nothing."""
    return not torch.compiler.is_compiling() and bool(_listeners.get())


def note(name: str, value: T) -> T:
    """Hand ``value`` back; if somebody records, keep it under ``name``.

    Of a callable, what it returns is kept.
    """
    if listening():
        kept = value() if callable(value) else value
        for notes in _listeners.get():
            notes.add(name, kept)
    return value


@contextmanager
def record(notes: Notes | None = None) -> Iterator[Notes]:
    """Keep what is noted inside the block. Blocks nest; each hears everything said inside it.

    ``notes`` may be one's own ``Notes``, for who wants to act on a note when it is made.
    """
    notes = Notes() if notes is None else notes
    token = _listeners.set((*_listeners.get(), notes))
    try:
        yield notes
    finally:
        _listeners.reset(token)
