"""Record every attention call of any torch model while it runs, without changing the model.

    with attnlab.watch(model) as seen:
        model(x)
    seen[0].weights                    # (b, h, n, m)

How it works. Inside the block a ``TorchFunctionMode`` receives every torch function that is called,
so nothing has to be patched and the model is unchanged afterwards. Calls of
``scaled_dot_product_attention`` are recorded wherever they come from; attention that is written out
(product, softmax, product) is recognised by following the scores (``attnlab.lens.trace``);
attnlab's own forms also note their quantities through ``attnlab.core.probe``, and each call is
recorded once.

Watches may nest or overlap and be closed in any order. A watch records what runs in the thread and
the asyncio task that opened it, and in tasks started inside the block. If it is closed in another
thread, an idle mode stays on PyTorch's stack of the first thread until the next watch there.

PyTorch's fused inference path (``nn.TransformerEncoder`` and ``nn.MultiheadAttention`` in eval mode
without gradients) computes everything in one C++ call. PyTorch leaves that path while
somebody watches; the module's answer is then computed once more on the fast path, so that the
caller gets the very bits it would have got, at the price of computing these modules twice. The
records come from the plain path; on real tokens both agree up to rounding.

What is recognised of written-out attention: products by ``matmul``, ``bmm``, ``einsum`` or a
broadcast product and a sum; scale, bias, masks and functions of the scores; attention sinks; heads
mixed with one another; ``softmax`` or ``log_softmax(…).exp()``; slot attention. Which axis is batch
and which heads is read from the model's own views. A record says in ``doubt`` why it may be no
attention; where keys and values are both parameters of the model it is none, and is left out.

What is not seen: attention inside TorchScript (refused with a sentence), in other threads
(``nn.DataParallel``), in FlexAttention and third-party kernels (flash-attn), nested tensors given
to ``nn.MultiheadAttention`` directly, additive (Bahdanau) scores, a softmax written out with
``exp``, and scores in blocks or diagonals (Longformer and BigBird of ``transformers``). Compiled
models run uncompiled inside the block. Calls that a checkpointed segment repeats during
``backward`` are not recorded twice.
"""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import nn

from attnlab.lens.record import Seen
from attnlab.lens.snapshots import Keep
from attnlab.lens.uncompiled import uncompiled
from attnlab.lens.watcher import Watcher


def watch(
    model: nn.Module, *, only: str | Sequence[str] | None = None, keep: Keep = None
) -> AbstractContextManager[Seen]:
    """Record every attention call of ``model`` inside the block.

    ``only`` keeps the modules whose path matches a pattern (``"encoder.layers.0*"``). ``keep`` is
    None, "copy" or "cpu". With None records are detached views, and reading a tensor that was since
    changed in place is an error; only tensors made under ``torch.inference_mode``, whose changes
    PyTorch does not count, are copied. Outputs and gradients are what they are without watching.
    """
    _refuse(model, keep)
    names = {module: _plain(name) for name, module in model.named_modules()}
    return _watching(names, _filter(names, only), keep)


@contextmanager
def _watching(
    names: dict[nn.Module, str], wanted: Callable[[str], bool], keep: Keep
) -> Iterator[Seen]:
    seen = Seen(type(next(iter(names))).__name__)
    with ExitStack() as stack:
        stack.enter_context(uncompiled())
        watcher = Watcher(names, seen, wanted, keep)
        watcher.open(stack)
        yield seen
        watcher.settle_all()


def _refuse(model: object, keep: object) -> None:
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__} itself; make an object of it")
    if not isinstance(model, nn.Module):
        raise TypeError(f"watch looks inside an nn.Module, got {type(model).__name__}")
    if not (keep is None or (isinstance(keep, str) and keep in ("copy", "cpu"))):
        raise ValueError(f'keep should be None, "copy" or "cpu", got {keep!r}')
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{name or 'the model'} is TorchScript, and nothing can be seen inside it; "
                "watch the Python module that it was made from"
            )


def _plain(name: str) -> str:
    """A path without the wrapper that torch.compile puts around a module."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _filter(names: dict[nn.Module, str], only: str | Sequence[str] | None) -> Callable[[str], bool]:
    if only is None:
        return lambda name: True
    patterns = [only] if isinstance(only, str) else only
    if not isinstance(patterns, Sequence) or not all(isinstance(each, str) for each in patterns):
        raise TypeError(f"only should be a pattern of module paths or several, got {only!r}")
    if not patterns:
        raise ValueError("only is empty, so nothing would be recorded; None records all modules")
    for pattern in patterns:
        if not fnmatch.filter(names.values(), pattern):
            some = ", ".join(repr(name) for name in list(names.values())[1:6])
            raise ValueError(
                f"only={pattern!r} matches no module of this model; it has "
                f"{f'{some}, …' if some else 'no modules inside'}"
            )
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
