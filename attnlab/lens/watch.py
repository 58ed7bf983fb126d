"""Look inside any torch model: every attention call, as it happens, without touching the model.

    with attnlab.watch(model) as seen:
        model(x)
    seen[0].weights                    # (b, h, n, m)

How. While the block runs, PyTorch tells a ``TorchFunctionMode`` of every function that is called,
so nothing is patched and nothing is left behind. Calls of ``scaled_dot_product_attention`` are
recorded wherever they come from; attention that is written out (product, softmax, product) is
recognised by following the scores (``attnlab.lens.trace``); attnlab's own forms also say what they
do through ``attnlab.core.probe``, and each call is recorded once.

PyTorch's fused inference path (``nn.TransformerEncoder`` and ``nn.MultiheadAttention`` in eval mode
without gradients) computes everything in one C++ call. PyTorch itself leaves that path while
somebody watches; the module's answer is then computed once more on the fast path, so that the
caller gets the very bits it would have got, at the price of computing these modules twice. The
records come from the plain path; on real tokens both agree up to rounding.

What is not seen: attention inside TorchScript (refused with a sentence), in other threads
(``nn.DataParallel``), in FlexAttention and third-party kernels (flash-attn), nested tensors given
to ``nn.MultiheadAttention`` directly, additive (Bahdanau) scores, and a softmax written out with
``exp``. Compiled models run uncompiled inside the block. Calls that a checkpointed segment repeats
during ``backward`` are not recorded twice.
"""

import fnmatch
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from attnlab.core import probe
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.lens.axes import Axis, Layout, aligned
from attnlab.lens.record import Held, History, Keep, Roles, Seen
from attnlab.lens.trace import ALIASES, Found, Scores, Trace, softmax_of


@contextmanager
def watch(
    model: nn.Module, *, only: str | Sequence[str] | None = None, keep: Keep = None
) -> Iterator[Seen]:
    """Record every attention call of ``model`` inside the block.

    ``only`` keeps the modules whose path matches a pattern (``"encoder.layers.0*"``). ``keep`` is
    None (detached views: nothing is copied, and reading a tensor that was since changed in place is
    an error), "copy" or "cpu". Outputs and gradients are what they are without watching. Blocks
    nest.
    """
    _refuse(model, keep)
    names = {module: _plain(name) for name, module in model.named_modules()}
    seen = Seen(type(model).__name__)
    watcher = _Watcher(names, _owners(names), seen, _filter(names, only), keep)
    with ExitStack() as stack:
        stack.callback(watcher.close)
        _uncompiled(model, stack)
        stack.enter_context(probe.record(_Ear(watcher.heard)))
        watcher.hook(stack)
        stack.enter_context(watcher)
        yield seen
        watcher.settle_all()


def _refuse(model: object, keep: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"watch looks inside an nn.Module, got {type(model).__name__}")
    if keep not in (None, "copy", "cpu"):
        raise ValueError(f'keep must be None, "copy" or "cpu", got {keep!r}')
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, and nothing can be seen inside it; "
                "watch the Python module that it was made from"
            )


def _uncompiled(model: nn.Module, stack: ExitStack) -> None:
    """Let compiled code run as the Python it was made from."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return  # nothing has been compiled
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    if any(isinstance(part, dynamo.OptimizedModule) for part in model.modules()):
        # It warns that global hooks fire for the wrapper too, which is as it should be here.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")


def _plain(name: str) -> str:
    """A path without the wrapper that torch.compile puts around a module."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _filter(names: dict[nn.Module, str], only: str | Sequence[str] | None) -> Callable[[str], bool]:
    if only is None:
        return lambda name: True
    patterns = [only] if isinstance(only, str) else list(only)
    for pattern in patterns:
        if not fnmatch.filter(names.values(), pattern):
            some = ", ".join(repr(name) for name in list(names.values())[1:6])
            raise ValueError(f"only={pattern!r} matches no module of this model; it has {some}, …")
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _owners(names: dict[nn.Module, str]) -> dict[nn.Module, str]:
    """For each projection of an attnlab layer, the layer's path.

    A layer that decodes is called by ``.step``, of which PyTorch tells nobody; that it projects
    its queries is heard all the same.
    """
    heads = {module: name for module, name in names.items() if isinstance(module, Heads)}
    return {part: heads[each].rpartition(".")[0] for each in heads for part in each.children()}


class _Ear(probe.Notes):
    """Hands each note on at once instead of keeping it."""

    def __init__(self, hear: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._hear = hear

    def add(self, name: str, value: Any) -> None:
        self._hear(name, value)


@dataclass
class _Said:
    """What an attnlab form has noted since its queries, and what was found meanwhile."""

    notes: dict[str, list[Any]] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    owner: str | None = None

    def last(self, name: str) -> Any:
        return self.notes.get(name, [None])[-1]


@dataclass
class _Frame:
    """A module that is running; ``path`` is None for modules of other models."""

    module: nn.Module | None
    path: str | None
    said: _Said | None = None
    owner: str | None = None
    """The layer whose projections ran last in this frame."""


class _Watcher(TorchFunctionMode):
    def __init__(
        self,
        names: dict[nn.Module, str],
        owners: dict[nn.Module, str],
        seen: Seen,
        wanted: Callable[[str], bool],
        keep: Keep,
    ) -> None:
        super().__init__()
        self._names, self._owners = names, owners
        self._seen, self._wanted, self._keep = seen, wanted, keep
        self._root = next(iter(names))
        self._trace = Trace()
        self._calls: Counter[str] = Counter()
        self._frames = [_Frame(None, "")]
        self._thread = threading.get_ident()
        self._paused = False

    # ---- what PyTorch tells

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return _opened(*args, **kwargs)
        name = _name(func)
        listening = not self._off()
        if listening:
            self._trace.before(name, args, kwargs)
        out = func(*args, **kwargs)
        if listening:
            found = self._trace.after(name, func, args, kwargs, out)
            if found is not None:
                self._found(found)
        return out

    def _off(self) -> bool:
        """Not now: during the second, fast run, and in a backward pass that repeats a forward."""
        return self._paused or torch._C._current_graph_task_id() != -1

    def hook(self, stack: ExitStack) -> None:
        """Learn which module is running. These hooks are global: no module carries anything."""
        enter = hooks.register_module_forward_pre_hook(self._enter)
        stack.callback(enter.remove)
        leave = hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        stack.callback(leave.remove)
        # PyTorch's own handle forgets to take the hook out of one of its tables.
        stack.callback(hooks._global_forward_hooks_with_kwargs.pop, leave.id, None)

    def _enter(self, module: nn.Module, args: Any) -> None:
        if not self._paused and threading.get_ident() == self._thread:
            self._frames.append(_Frame(module, self._names.get(module)))

    def _leave(self, module: nn.Module, args: Any, *rest: Any) -> Any:
        """After a module's forward: ``rest`` is (kwargs, output), or (None,) if it raised."""
        if self._paused or threading.get_ident() != self._thread:
            return None
        if not any(frame.module is module for frame in self._frames):
            return None
        while True:
            frame = self._frames.pop()
            self._settle(frame)
            if frame.module is module:
                break
        self._projected(module)
        fast = rest[-1] is not None and _has_fast_path(module)
        if fast and not any(_has_fast_path(frame.module) for frame in self._frames):
            return self._fast(module, args, rest[0])
        return None

    def _projected(self, module: nn.Module) -> None:
        """An attnlab layer's projection has run: whose, and whether it was the last one."""
        owner = self._owners.get(module)
        if owner is not None:
            self._frames[-1].owner = owner
            if self._names[module].endswith(".output"):
                self._settle(self._frames[-1])

    def _fast(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """The module's own answer, as if nobody watched."""
        self._paused = True
        try:
            with torch._C.DisableTorchFunction():
                return module.forward(*args, **kwargs)
        finally:
            self._paused = False

    # ---- what attnlab's forms say

    def heard(self, name: str, value: Any) -> None:
        if self._off() or threading.get_ident() != self._thread:
            return
        if name == "queries":
            self._settle(self._frames[-1])
            self._frames[-1].said = _Said(owner=self._frames[-1].owner)
        said = self._said()
        if said is None:
            said = self._frames[-1].said = _Said()
        said.notes.setdefault(name, []).append(value)
        if name == "weights":
            self._link(said, value)

    def _link(self, said: _Said, weights: Any) -> None:
        """Noted weights come from the noted scores, whatever softmax made them."""
        scores = said.last("scores")
        origin = self._trace.of(scores)
        if isinstance(origin, Scores) and isinstance(weights, Tensor):
            if weights.shape != scores.shape:
                return
            made = softmax_of(origin, -1, Held(weights, origin.layout))
            if made is not None:
                _mask(made.history, said.last("mask"), origin.layout)
                self._trace.learn(weights, made)

    def _said(self) -> _Said | None:
        return next((f.said for f in reversed(self._frames) if f.said is not None), None)

    # ---- from findings to records

    def _found(self, found: Found) -> None:
        said = self._said()
        if said is not None:
            said.found.append(found)
        else:
            self._append(found)

    def _settle(self, frame: _Frame) -> None:
        """Of what was noted and what was found in this frame, keep each call once."""
        said, frame.said = frame.said, None
        if said is None:
            return
        q, k, v = (said.last(name) for name in ("queries", "keys", "values"))
        noted = all(isinstance(x, Tensor) and x.dim() == 4 for x in (q, k, v))
        if noted:
            same = [f for f in said.found if f.shape[:3] == tuple(q.shape[:3])]
            found = same or [_from_notes(said, q, k, v)]
        else:
            found = said.found
        for each in found:
            self._append(each, frame, said.owner)

    def settle_all(self) -> None:
        for frame in self._frames:
            self._settle(frame)

    def _append(self, found: Found, last: _Frame | None = None, owner: str | None = None) -> None:
        frames = [*self._frames, *([last] if last else [])]
        path = next((f.path for f in reversed(frames) if f.path is not None and f.module), None)
        inside = [frame for frame in frames if frame.module is not None]
        if path is None and inside:
            return  # another model's
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

    def close(self) -> None:
        self._trace.clear()
        self._frames = []


def _name(func: Any) -> str:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(func.__self__, "__name__", "")
    name = name.strip("_")
    return ALIASES.get(name, name)


_opened = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda tensors: False},
    "multi_head_attention_forward",
    F.multi_head_attention_forward.__defaults__,
)
"""PyTorch's own function, minus the question whether somebody overrides it as a whole: what it does
inside is then told to us function by function."""
_opened.__kwdefaults__ = F.multi_head_attention_forward.__kwdefaults__

_FAST = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


def _has_fast_path(module: nn.Module | None) -> bool:
    """Whether PyTorch may run this module, unwatched, in one fused call."""
    kind = next((kind for kind in _FAST if isinstance(module, kind)), None)
    if (
        kind is None
        or module is None
        or module.training
        or type(module).forward is not kind.forward
    ):
        return False
    if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
        return False
    if isinstance(module, nn.TransformerEncoder):
        return all(_has_fast_path(layer) for layer in module.layers)
    inner = [part for part in module.modules() if part is not module]
    return not any(part._forward_hooks or part._forward_pre_hooks for part in inner)


def _mask(history: History, mask: Any, layout: Layout) -> None:
    if isinstance(mask, Pattern):
        history.pattern = mask
    elif isinstance(mask, Tensor):
        history.masks.append((Held(mask, aligned(mask.shape, layout)), True))


def _from_notes(said: _Said, q: Tensor, k: Tensor, v: Tensor) -> Found:
    """A record of a form that is neither SDPA nor a softmax that we could follow."""
    (b, g, n, m, d, e) = (Axis(x) for x in (*k.shape[:2], *q.shape[2:3], *k.shape[2:], v.shape[3]))
    heads = (g, Axis(q.shape[1] // k.shape[1]))
    history = History(factor=q.shape[-1] ** -0.5)
    layout = ((b,), heads, (n,), (m,))
    _mask(history, said.last("mask"), layout)
    found = Found(
        "noted",
        Roles((b,), heads, (n,), (m,), (d,), (e,)),
        Held(q, ((b,), heads, (n,), (d,))),
        Held(k, ((b,), (g,), (m,), (d,))),
        Held(v, ((b,), (g,), (m,), (e,))),
        history,
    )
    weights, lse = said.last("weights"), said.last("log_sum_exp")
    if isinstance(weights, Tensor) and tuple(weights.shape) == found.shape:
        found.weights = Held(weights, layout)
    elif isinstance(lse, Tensor) and tuple(lse.shape) == found.shape[:3]:
        found.log_sum_exp = Held(lse, layout[:3])
    else:
        found.missing = (
            "this mechanism noted no weights, perhaps because it has none; "
            "attnlab.lens.mixing.mixing_matrix(module, x) gives the map it amounts to"
        )
    return found
