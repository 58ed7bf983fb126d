"""Follows a running model: its modules, its function calls, and the notes of attnlab's forms."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from attnlab.core import probe
from attnlab.core.heads import Heads
from attnlab.lens import fast_path
from attnlab.lens.form_notes import FormNotes
from attnlab.lens.record import Seen
from attnlab.lens.snapshots import Keep
from attnlab.lens.trace.meanings import Found
from attnlab.lens.trace.readable import OF_ATTENTION, unreadable
from attnlab.lens.trace.tracer import ALIASES, Trace


class Listener(probe.Notes):
    """Passes each note on to ``handle`` at once instead of storing it."""

    def __init__(self, handle: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._handle = handle

    def add(self, name: str, value: Any) -> None:
        self._handle(name, value)


@dataclass
class Frame:
    """A module that is running; ``path`` is None for modules of other models."""

    module: nn.Module | None
    path: str | None
    noted: FormNotes | None = None
    owner: str | None = None
    """The layer whose projections ran last in this frame."""


class Watcher(TorchFunctionMode):
    """One open ``watch``. It records what runs where it was opened: in that thread, in that
    asyncio task and the tasks started inside."""

    def __init__(
        self,
        names: dict[nn.Module, str],
        seen: Seen,
        wanted: Callable[[str], bool],
        keep: Keep,
    ) -> None:
        super().__init__()
        self._names, self._owners = names, owners(names)
        self._seen, self._wanted, self._keep = seen, wanted, keep
        self._root = next(iter(names))
        self._trace = Trace(_parameters(self._root))
        self._calls: Counter[str] = Counter()
        self._frames = [Frame(None, "")]
        self._thread = threading.get_ident()
        self._listener = Listener(self._on_note)
        self._paused = False
        self._away: nn.Module | None = None  # a module that runs only unseen
        self.closed = False

    # ---- open and close

    def open(self, stack: ExitStack) -> None:
        """Begin; closes with ``stack``, in any order with other watches and in any thread."""
        stack.callback(self._close)
        stack.enter_context(probe.record(self._listener))
        self._hook(stack)
        _sweep()
        _push_mode(self)

    def _hook(self, stack: ExitStack) -> None:
        """Learn which module is running. These hooks are global: no module carries anything."""
        enter = hooks.register_module_forward_pre_hook(self._enter)
        stack.callback(enter.remove)
        leave = hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        stack.callback(leave.remove)
        # PyTorch's handle leaves the hook in one of its tables, so it is removed here.
        stack.callback(hooks._global_forward_hooks_with_kwargs.pop, leave.id, None)

    def _close(self) -> None:
        self.closed = True
        _sweep()
        self._trace.clear()
        self._frames = [Frame(None, "")]
        # Watcher and listener know each other, and what they know would wait for the garbage
        # collector: the recording, with tensors that may fill a GPU, is not to.
        self._seen = Seen()

    # ---- calls of PyTorch functions

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.closed:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                return fast_path.multi_head_attention(*args, **kwargs)
        name = _name(func)
        follow = self._follows() and self._readable(name, (args, tuple(kwargs.values())))
        if follow:
            self._trace.before(name, args, kwargs)
        out = func(*args, **kwargs)
        if follow and self._readable(name, (out,)):
            found = self._trace.after(name, func, args, kwargs, out)
            if found is not None:
                self._found(found)
        return out

    def _follows(self) -> bool:
        """Whether calls are recorded: not in the second, fast run, nor in a recomputed forward."""
        return not self._paused and not _in_backward() and self._here()

    def _readable(self, name: str, values: tuple[Any, ...]) -> bool:
        kind = unreadable(values)
        if kind is not None and name in OF_ATTENTION:
            self._seen._unread.add(kind)
        return kind is None

    def _here(self) -> bool:
        """Whether this is the thread and the asyncio task in which the watch was opened."""
        return threading.get_ident() == self._thread and probe.recording(self._listener)

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self._paused or self.closed:
            return
        if self._here():
            self._frames.append(Frame(module, self._names.get(module)))
            if self._away is None and fast_path.has_fast_path(module):
                self._look_away(module, (*args, *_keywords(sys._getframe(1)).values()))
        elif module in self._names and not _in_backward():
            self._seen._called_elsewhere = True

    def _leave(self, module: nn.Module, args: Any, *rest: Any) -> Any:
        """After a module's forward: ``rest`` is (kwargs, output), or (None,) if it raised."""
        if self._paused or self.closed or not self._here():
            return None
        if not any(frame.module is module for frame in self._frames):
            return None
        while True:
            frame = self._frames.pop()
            self._settle(frame)
            if frame.module is module:
                break
        if self._away is module:
            self._away = None
            _push_mode(self)
            return None
        self._projected(module)
        fast = rest[-1] is not None and fast_path.has_fast_path(module)
        if fast and not any(fast_path.has_fast_path(frame.module) for frame in self._frames):
            return self._unwatched(module, args, rest[0])
        return None

    def _projected(self, module: nn.Module) -> None:
        """Called after each projection of an attnlab layer; the output projection ends the call."""
        owner = self._owners.get(module)
        if owner is not None:
            self._frames[-1].owner = owner
            if self._names[module].endswith(".output"):
                self._settle(self._frames[-1])

    def _look_away(self, module: nn.Module, args: Any) -> None:
        """PyTorch runs nested tensors on its fast path alone, and that only unwatched."""
        kind = unreadable(args)
        if kind is not None:
            self._away = module
            self._seen._unread.add(kind)
            _remove(self)

    def _unwatched(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        self._paused = True
        try:
            return fast_path.unwatched(module, args, kwargs)
        finally:
            self._paused = False

    # ---- notes of attnlab's forms

    def _on_note(self, name: str, value: Any) -> None:
        if self.closed or not self._follows() or not self._readable("softmax", (value,)):
            return
        if name == "queries":
            self._settle(self._frames[-1])
            self._frames[-1].noted = FormNotes(owner=self._frames[-1].owner)
        noted = self._noted()
        if noted is None:
            noted = self._frames[-1].noted = FormNotes()
        noted.notes.add(name, value)
        if name == "weights":
            noted.link(self._trace, value)

    def _noted(self) -> FormNotes | None:
        return next((f.noted for f in reversed(self._frames) if f.noted is not None), None)

    # ---- records

    def _found(self, found: Found) -> None:
        noted = self._noted()
        if noted is not None:
            noted.found.append(found)
        else:
            self._append(found)

    def _settle(self, frame: Frame) -> None:
        """Record what was noted and found in this frame, each call once."""
        noted, frame.noted = frame.noted, None
        for each in noted.calls() if noted is not None else ():
            self._append(each, frame, noted.owner if noted is not None else None)

    def settle_all(self) -> None:
        for frame in self._frames:
            self._settle(frame)

    def _append(self, found: Found, last: Frame | None = None, owner: str | None = None) -> None:
        frames = [*self._frames, *([last] if last else [])]
        path = next((f.path for f in reversed(frames) if f.path is not None and f.module), None)
        inside = [frame for frame in frames if frame.module is not None]
        if path is None and inside:
            return  # the call of another model
        path = path or ""
        if owner is not None and owner.startswith(f"{path}." if path else ""):
            path = owner  # a layer inside that is being stepped
        if self._wanted(path):
            name = path or type(self._root).__name__
            self._calls[name] += 1
            calls = self._calls[name]
            self._seen._records.append(
                found.record(name if calls == 1 else f"{name}#{calls}", self._keep)
            )


def owners(names: dict[nn.Module, str]) -> dict[nn.Module, str]:
    """For each projection of an attnlab layer, the layer's path.

    A layer that decodes is called by ``.step``, for which PyTorch runs no hook; the hooks of its
    projections run all the same.
    """
    heads = {module: name for module, name in names.items() if isinstance(module, Heads)}
    return {part: heads[each].rpartition(".")[0] for each in heads for part in each.children()}


def _parameters(model: nn.Module) -> Callable[[Tensor], bool]:
    """Whether a tensor is, or is a view of, a parameter of ``model``."""
    stored = {_storage(parameter) for parameter in model.parameters()} - {0}
    return lambda tensor: _storage(tensor) in stored


def _storage(tensor: Tensor) -> int:
    """The address of the storage; 0 for tensors without one of their own (sparse, sharded)."""
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return tensor.untyped_storage().data_ptr() if plain else 0


def _sweep() -> None:
    """Take closed watchers off this thread's stack of modes, wherever they are in it.

    One that was closed in another thread stays, doing nothing, until the next sweep in its own.
    """
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, Watcher) and mode.closed:
            _remove(mode)


def _remove(watcher: Watcher) -> None:
    """Take a watcher off this thread's stack of modes, wherever it is in it."""
    stack = _get_current_function_mode_stack()
    for _ in stack:
        _pop_mode()
    for mode in stack:
        if mode is not watcher:
            _push_mode(mode)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _name(func: Any) -> str:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(func.__self__, "__name__", "")
    name = name.strip("_")
    return ALIASES.get(name, name)


def _keywords(caller: FrameType) -> dict[str, Any]:
    """The keyword arguments of a module's call, which PyTorch keeps from hooks of all modules."""
    kwargs = caller.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}
