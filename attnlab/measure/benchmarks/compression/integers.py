"""Products of integers: the time of 8 bits beside float32, by PyTorch's kernels and by torchao.

Fewer bits save time where a kernel multiplies integers. ``torch.ao`` has one for linear layers
whose inputs are rounded when they come; torchao, an extra (``pip install "attnlab[int8]"``), takes
its place in later versions of PyTorch. The layers of attnlab itself make exact sums that are the
same on every processor, and are not fast.
"""

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.compression.levels import Levels
from attnlab.compression.quantization import Quantization
from attnlab.measure.benchmarks.compression.pruning import models
from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

WIDTH, TOKENS, BATCH, LENGTH = 1024, 256, 8, 128
MISSING = 'torchao is not installed: pip install "attnlab[int8]"'


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A linear layer of 1,024 × 1,024 and four feed-forward layers of 1,024 and 2,048, on 256
    vectors; and the model of the rows on pruning."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        width = 64 if quick else WIDTH
        layer = nn.Sequential(nn.Linear(width, width)).eval()
        feed = nn.Sequential(*(part for _ in range(4) for part in _feed(width, 2 * width))).eval()
        x = torch.randn(8 if quick else TOKENS, width)
    b, n = (1, 16) if quick else (BATCH, LENGTH)
    texts = torch.zeros(b, n, dtype=torch.int64)
    whole = models()["whole"]
    for name, module, given in (
        ("linear layer", layer, x),
        ("feed-forward network", feed, x),
        ("transformer", whole, texts),
    ):
        yield from _of(name, module, given, repeats=2 if quick else 15, threads=threads)


def _feed(width: int, hidden: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)


def _of(name: str, module: nn.Module, x: Tensor, *, repeats: int, threads: int) -> Iterator[Row]:
    made: dict[str, nn.Module] = {"float32": module}
    why: dict[str, str] = {}
    for kind, make in KINDS.items():
        try:
            each = make(module)
            _call(each, x)
            made[kind] = each
        except AttributeError:  # its ``weight`` is a method
            why[kind] = f"a layer of {kind} has no weight that the model can read"
        except (ImportError, RuntimeError, NotImplementedError) as error:
            why[kind] = str(error).partition("\n")[0]
    calls = {kind: partial(_call, each, x) for kind, each in made.items()}
    found = {t.name: t for t in compare(calls, repeats=repeats, warmup=2, threads=threads)}
    for kind in KINDS:
        figure = f"{name}, 8 bits by {kind}: time / that of float32"
        if kind in why:
            yield Row(figure, None, note=why[kind])
        else:
            yield ratio(figure, found[kind], found["float32"], work=_error(module, made[kind], x))


def _error(module: nn.Module, made: nn.Module, x: Tensor) -> str:
    """Which layers have integers, and how far the outputs are from those of float32."""
    whole = _call(module, x)
    share = (_call(made, x) - whole).norm() / whole.norm()
    left = sum(type(part) is nn.Linear for part in made.modules() if not _is_wrapped(part))
    of_all = sum(type(part) is nn.Linear for part in module.modules())
    return f"{of_all - left} of {of_all} layers; outputs differ by {share:.1%} of their norm"


def _is_wrapped(part: nn.Module) -> bool:
    """Whether the weight of a linear layer is a tensor of integers, as torchao has it."""
    weight = getattr(part, "weight", None)
    return isinstance(weight, Tensor) and type(weight.data) is not Tensor


@torch.no_grad()
def _call(module: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = module(x)
    return found


# ---- who makes the integers


def by_torch(module: nn.Module) -> nn.Module:
    """Linear layers of int8 whose inputs are rounded when they come, of ``torch.ao``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torchao is to take its place
        from torch.ao.quantization import quantize_dynamic

        made: nn.Module = quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)
    return made


def by_torchao(module: nn.Module) -> nn.Module:
    """Makes such layers by torchao, with a scale for each row of weights and for each vector.

    Raises ImportError, in a sentence, where torchao is not installed.
    """
    if importlib.util.find_spec("torchao") is None:
        raise ImportError(MISSING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own: Any = importlib.import_module("torchao.quantization")
        made = copy.deepcopy(module)
        own.quantize_(made, own.Int8DynamicActivationInt8WeightConfig())
    return made


def by_attnlab(module: nn.Module) -> nn.Module:
    """Makes such layers of this package, whose sums are exact and equal on every processor."""
    made: nn.Module = Quantization(Levels(per="channel"), activations="dynamic")(module)
    return made


KINDS: Mapping[str, Callable[[nn.Module], nn.Module]] = {
    "torch.ao": by_torch,
    "torchao": by_torchao,
    "attnlab": by_attnlab,
}
