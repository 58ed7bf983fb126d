"""How the layers of a Swin transformer divide an image into windows, watched while it runs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from attnlab.lens.sources.joined import Windows


class Seen(Mapping[str, Windows]):
    """From the path of an attention module to its windows: those of the block that it is in."""

    def __init__(self) -> None:
        self.blocks: dict[str, Windows] = {}

    def __getitem__(self, name: str) -> Windows:
        path = name.partition("#")[0]
        while path:
            if path in self.blocks:
                return self.blocks[path]
            path = path.rpartition(".")[0]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


@contextmanager
def watch_windows(model: nn.Module) -> Iterator[Seen]:
    """Inside the block, learn the windows of every module with a size and a shift of windows.

    That is how Hugging Face, torchvision and timm write a Swin transformer.
    """
    seen = Seen()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if hasattr(module, "window_size") and hasattr(module, "shift_size"):
                hook = _Hook(path, seen)
                handle = module.register_forward_hook(hook, with_kwargs=True)
                stack.callback(handle.remove)
        yield seen


class _Hook:
    def __init__(self, path: str, seen: Seen) -> None:
        self._path, self._seen = path, seen

    def __call__(self, module: Any, args: Any, named: Any, output: Any) -> None:
        size = _grid(*args, **named)
        if size is None:
            return
        (high, wide), shift = _pair(module.window_size), _pair(module.shift_size)
        rows, columns = size
        # A window as large as the grid is not moved, and none is larger.
        moved = (shift[0] if high < rows else 0, shift[1] if wide < columns else 0)
        windows = Windows(rows, columns, min(high, rows), min(wide, columns), moved)
        self._seen.blocks[self._path] = windows


def _grid(hidden: Any = None, size: Any = None, *_: Any, **named: Any) -> tuple[int, int] | None:
    """Rows and columns: an argument of Hugging Face's, the shape of the others' (b, H, W, c)."""
    size = named.get("input_dimensions", size)
    if isinstance(size, tuple | list) and len(size) == 2:
        return int(size[0]), int(size[1])
    if isinstance(hidden, Tensor) and hidden.dim() == 4:
        return hidden.shape[1], hidden.shape[2]
    return None


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)
