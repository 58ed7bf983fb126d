"""Every form on a GPU: `make gpu` runs these tests on a machine that has one.

Without a GPU they are skipped, and what they compare is tried on the CPU with two mechanisms.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.measure.memory import allocated
from attnlab.measure.subject import subject
from attnlab.testing.mechanisms import CARDS, DIM, module, the_accelerator, variants
from tests.second_device_cases import WAITS
from tests.test_long_precision_claims import CHOOSES

BOUNDS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Of the length of a tensor, and 8 times what `naive` differs by on the CPU in that precision."""
SHORT, LONG = 1024, 4096

SKIPPED = 1 if the_accelerator() is None else None
"""Where there is no GPU, one case says so for all."""
CASES = [
    pytest.param(card, form, variant, id=f"{card.name}-{form}-{variant}")
    for card in CARDS
    for variant in range(len(variants(card)))
    for form in [*card.forms, *(name for name in card.kernels if name == "triton")]
    if form == list(card.forms)[-1] or "form" in card.option_names()
][:SKIPPED]
KERNELS = [
    pytest.param(card, form, id=f"{card.name}-{form}") for card in CARDS for form in card.kernels
][:SKIPPED]


def compare(
    card: Card, form: str, variant: int, dtype: torch.dtype, device: torch.device,
    n: int = 67, **sizes: int,
) -> None:  # fmt: skip
    """Output and gradients of a form there, and of `naive` in float64 on the CPU, from weights and
    inputs that the precision can hold."""
    takes = "form" in card.option_names()
    there = module(card, variant, **sizes, **({"form": form} if takes else {})).to(dtype)
    plain, exact = (
        module(card, variant, **sizes, **({"form": "naive"} if takes else {})) for _ in "pe"
    )
    for layer in (plain, exact):
        layer.load_state_dict(copy.deepcopy(there.state_dict()))
    torch.manual_seed(0)
    x = torch.randn(2, n, sizes.get("dim", DIM)).to(dtype)
    wanted = both_passes(exact.double(), x.double())
    rounded = apart(both_passes(plain.to(dtype), x.clone()), wanted)
    for name, far in apart(both_passes(there.to(device), x.to(device)), wanted).items():
        assert far <= BOUNDS[dtype] + 8 * rounded[name], (
            f"{name} is {far:.2g} of its length away from naive's, {rounded[name]:.2g} on a CPU"
        )


def apart(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, float]:
    """How far each tensor is away from the right one, in lengths of that one."""
    return {
        name: (found[name].cpu().double() - right).norm().item() / max(1e-3, right.norm().item())
        for name, right in wanted.items()
    }


def both_passes(layer: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The output, and the gradients of the input and of every parameter."""
    x = x.detach().requires_grad_()
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    named = {"input": x} | {name: p for name, p in layer.named_parameters() if p.requires_grad}
    total = (out.double() * weights.to(out.device)).sum()
    found = torch.autograd.grad(total, list(named.values()), materialize_grads=True)
    return {"output": out.detach()} | dict(zip(named, found, strict=True))


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", ["full", "deltanet"])
def test_what_is_compared_can_be_tried_without_a_gpu(name: str, dtype: torch.dtype) -> None:
    card = catalog.card(name)
    for form in card.forms:
        compare(card, form, 0, dtype, torch.device("cpu"))


def test_a_form_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    card = catalog.card("full")
    layer = type(module(card, 0))
    forward = layer.forward
    monkeypatch.setattr(
        layer, "forward",
        lambda self, x, *more: forward(self, x, *more) * (1 if self.form == "naive" else 1.01),
    )  # fmt: skip
    with pytest.raises(AssertionError, match=r"output|query"):
        compare(card, "fused", 0, torch.float32, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("card", "form", "variant"), CASES)
def test_values_and_gradients(
    card: Card, form: str, variant: int, dtype: torch.dtype, accelerator: torch.device
) -> None:
    if dtype != torch.float32 and card.name in CHOOSES:
        pytest.skip("what is chosen among near equals depends on rounding")
    compare(card, form, variant, dtype, accelerator)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # likewise
@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("card", "form"), KERNELS)
def test_kernels(card: Card, form: str, dtype: torch.dtype, accelerator: torch.device) -> None:
    """Heads are as wide as kernels take them, and lengths no multiple of their blocks."""
    compare(card, form, 0, dtype, accelerator, n=301, dim=96, heads=3)


@contextmanager
def refused_waiting() -> Iterator[None]:
    """Within it, an operation for which the CPU waits raises an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that runs CUDA")


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("card", CARDS[:SKIPPED], ids=lambda card: card.name)
def test_no_fast_form_waits(card: Card) -> None:
    if card.name in WAITS:
        pytest.skip(WAITS[card.name])
    layer = module(card, 0).float().cuda()
    x = torch.randn(2, 64, DIM, device="cuda", requires_grad=True)
    layer(x).sum().backward()  # what is made once for each length is made
    with refused_waiting():
        layer(x).sum().backward()


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize(
    "card", [c for c in CARDS if c.structure is None][:SKIPPED], ids=lambda c: c.name
)
def test_memory_grows_at_most_as_claimed(card: Card) -> None:
    one = subject(card.name, dim=256, heads=4)
    peaks = []
    for n in (SHORT, LONG):
        layer, x = one.layer(n, "cuda"), one.sequence(n, "cuda").detach()
        with torch.no_grad():
            layer(x)
            peaks.append(allocated(lambda layer=layer, x=x: layer(x), "cuda"))
    claimed = max(one.claim("memory", LONG) / one.claim("memory", SHORT), LONG / SHORT)
    assert peaks[1] <= 1.3 * claimed * peaks[0], peaks
