"""Kernels in Triton: where they refuse, the claims in its interpreter, and compiled for GPUs.

Triton decides when it is imported whether it interprets or compiles, so each is a process of its
own. Nothing here needs a GPU; ``tests/test_on_a_gpu.py`` runs the same forms on one.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attnlab import catalog
from attnlab.core import kernels
from attnlab.core.kernels import refusal

ROOT = Path(__file__).parents[2]
WRITTEN = [card for card in catalog.cards() if "triton" in card.kernels]
INSTALLED = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed (Linux alone has it)",
)
ON_A_CPU = "these tensors are on the device 'cpu', and a kernel needs"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Another Python, in which Triton is imported anew."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**clean, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# ---- where it runs


@INSTALLED
def test_a_cpu_is_refused_in_a_sentence() -> None:
    layer = catalog.build("selective_scan", dim=8, causal=True, form="triton")
    with pytest.raises(ValueError, match=f"triton cannot run here: {ON_A_CPU}.*another form"):
        layer(torch.randn(1, 3, 8))
    assert "no numbers" in (refusal(torch.empty(3, device="meta")) or "")


def test_without_triton_the_sentence_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    kernels._missing.cache_clear()
    try:
        with pytest.raises(ValueError, match="package triton is not installed; it comes with"):
            kernels.kernel("linear_recurrence", "recurrence", torch.ones(1))
    finally:
        kernels._missing.cache_clear()


@INSTALLED
def test_transforms_are_refused() -> None:
    said = []

    def looked(x: torch.Tensor) -> torch.Tensor:
        said.append(refusal(x))
        return x

    torch.func.vmap(looked)(torch.ones(2, 3))
    assert said == ["torch.func and torch.export cannot look into a kernel"]


def test_a_broken_driver_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @property
        def active(self) -> None:
            raise RuntimeError("0 active drivers\nand a page of text")

    class Runtime:
        driver = Broken()

    monkeypatch.setattr(importlib, "import_module", lambda name: Runtime)
    kernels._driver_fault.cache_clear()
    found = kernels._driver_fault("cuda")
    kernels._driver_fault.cache_clear()
    assert found == "Triton finds no driver for the device 'cuda' (0 active drivers)"


def test_a_gpu_that_is_too_old_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        active = SimpleNamespace(get_current_target=lambda: None)

    runtime = SimpleNamespace(driver=Driver())
    monkeypatch.setattr(importlib, "import_module", lambda name: runtime)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    found = kernels._driver_fault.__wrapped__("cuda")
    assert found == "this GPU has compute capability 7.5, and Triton compiles for 8.0 or more"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert kernels._driver_fault.__wrapped__("cuda") is None


def test_a_kernel_that_cannot_be_compiled_ends_in_a_sentence() -> None:
    class OutOfResources(Exception):
        __module__ = "triton.runtime.errors"

    class Kernel:
        __name__ = "attend_rows"
        error: Exception = OutOfResources("out of shared memory, 300000 of 232448 bytes\nReduce")

        def __getitem__(self, grid: tuple[int, ...]) -> None:
            raise self.error

    said = r"compile attend_rows for this GPU \(out of shared memory, 300000 of 232448 bytes\); use"
    with pytest.raises(ValueError, match=said):
        kernels.launch(Kernel(), (1,))
    other = Kernel()
    other.error = KeyError("what a mistake in a call raises")
    with pytest.raises(KeyError):
        kernels.launch(other, (1,))


def test_no_form_in_triton_is_the_default() -> None:
    """Neither of a layer nor where a cost is asked: whoever wants one names it."""
    assert WRITTEN
    for card in WRITTEN:
        assert "triton" not in card.forms
        layer = catalog.build(card.name, dim=12, heads=6, causal=card.causal == "always")
        assert f"form={list(card.forms)[-1]!r}" in repr(layer)
        assert card.cost("launches", "triton") != 0
        assert "triton" in dict(card.rows())["forms"]


def test_triton_is_not_imported_with_the_library() -> None:
    code = "import sys, attnlab; attnlab.cards(); print('triton' in sys.modules)"
    assert run("-c", code).stdout.strip() == "False"


# ---- in the interpreter


@INSTALLED
@pytest.mark.slow
@pytest.mark.parametrize("card", WRITTEN, ids=lambda card: card.name)
def test_the_claims_hold_in_the_interpreter(card) -> None:
    """Values and gradients of ``naive``, under all masks and options, and the other claims."""
    page = "/".join(card.forms["naive"].__module__.split(".")[2:4])
    done = run(
        *("-m", "pytest", "-v", "-n", "0", "-p", "no:nbval", "-p", "no:cacheprovider"),
        *("tests/test_claims.py", f"--pages={page}", "-k", f"{card.name}-triton"),
        TRITON_INTERPRET="1",
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"test_form_equals_naive[{card.name}-triton-0-float64-self] PASSED" in done.stdout


RECURRENCE = """
import torch
from attnlab.core.kernels import linear_recurrence as made

made.TOKENS, made.CHANNELS = 8, 4  # several tiles of tokens, and programs of channels

def step_by_step(a, b, h):
    states = []
    for decay, drive in zip(a.unbind(1), b.unbind(1)):
        h = decay * h + drive
        states.append(h)
    return torch.stack(states, dim=1)

for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
    for n in (1, 7, 8, 9, 29):
        shapes = (2, n, 3, 5), (2, n, 3, 5), (2, 3, 5)
        given = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
        outs = [function(*given) for function in (made.recurrence, step_by_step)]
        up = torch.randn_like(outs[0])
        found, wanted = ([out, *torch.autograd.grad(out, given, up)] for out in outs)
        for mine, right in zip(found, wanted, strict=True):
            near = bound * right.abs().max().item()
            torch.testing.assert_close(mine, right, rtol=bound, atol=near)
x = torch.ones(1, 2, 3, requires_grad=True)
try:
    torch.autograd.grad(made.recurrence(x, x, x[:, 0]).sum(), x, create_graph=True)
except RuntimeError as error:
    print(error)
print(made.recurrence(x[:, :0], x[:, :0], x[:, 0]).shape)
"""


@INSTALLED
def test_the_recurrence_over_several_tiles_in_the_interpreter() -> None:
    """Forward, and backward from the last token on; a second derivative is refused."""
    done = run("-c", RECURRENCE, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the triton form has first derivatives only" in done.stdout
    assert "torch.Size([1, 0, 3])" in done.stdout


TILES = """
import torch
from attnlab.core import patterns as p
from attnlab.core.kernels import tiles as made
from attnlab.mechanisms.dense.flash import naive, triton

made.TILE = 32  # 16 for these numbers of eight bytes

def drawn(n, m):
    shapes = (2, 3, n, 5), (2, 3, m, 5), (2, 3, m, 7)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

valid = torch.arange(41) < torch.tensor([[19], [41]])
cases = {
    "causal": p.causal(),
    "window": p.local(3),
    "dilated, padded": p.causal() & p.dilated(4, 3) & p.padding(valid),
    "blocks and a first token": p.blocks(11) | p.global_([0]),
    "documents of each sequence": p.document(torch.arange(41) // torch.tensor([[6], [20]])),
    "heads that differ": p.per_head(p.causal(), p.local(2), p.full()),
    "random": p.random(3, seed=1) & ~p.local(1),
}
for name, mask in cases.items():
    for n in (41, 18):
        given = drawn(n, 41)
        outs = [form(*given, mask=mask) for form in (triton, naive)]
        up = torch.randn_like(outs[0])
        found, wanted = ([out, *torch.autograd.grad(out, given, up)] for out in outs)
        for mine, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-10, atol=1e-10)
q, k, _ = drawn(41, 41)
print((made.visits(p.causal(), q, k, 16).table).tolist())
print(tuple(made.visits(p.causal(), q, k, 16).masks.shape))
try:
    triton(*(torch.randn(1, 1, 3, 257) for _ in "qkv"))
except ValueError as error:
    print(error)
"""


@INSTALLED
@pytest.mark.slow
def test_attention_over_several_tiles_in_the_interpreter() -> None:
    """Patterns of all kinds, values and gradients; empty tiles are not visited, whole ones have no
    mask."""
    done = run("-c", TILES, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
    table, masks, refused = done.stdout.splitlines()
    assert table == "[[0, -2, -2], [-1, 1, -2], [-1, -1, 2]]"
    assert masks == "(1, 1, 3, 16, 16)"
    assert "heads should be at most 256 wide, these are 257; use another form" in refused


ENTMAX = """
import torch
from attnlab.core.kernels import entmax as made
from attnlab.mechanisms.learned.entmax import EntmaxAttention, definition

made.HELD = 128  # several programs, of several rows each where they are short
for m in (1, 3, 37, 130):
    z = torch.randn(2, 5, m, dtype=torch.float64) * 3
    z[0, 0], z[0, 1, 1:], z[1, 2] = -torch.inf, -torch.inf, 7.0  # no key, one key, equal keys
    mine, right = z.clone().requires_grad_(), z.clone().requires_grad_()
    found = made.entmax15(mine)
    wanted = definition.by_sorting(definition.shifted(right, None), 1.5)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    up = torch.randn_like(z)
    pairs = zip(torch.autograd.grad(found, mine, up), torch.autograd.grad(wanted, right, up))
    for one, other in pairs:
        torch.testing.assert_close(one, other.nan_to_num(0), rtol=1e-9, atol=1e-9)
for given in (dict(alpha=1.2), dict(learn_alpha=True)):
    try:
        EntmaxAttention(8, 2, form="triton", **given)
    except ValueError as error:
        print(error)
try:
    made.entmax15(torch.zeros(1, 2**14 + 1))
except ValueError as error:
    print(error)
"""


@INSTALLED
def test_entmax_of_hard_rows_in_the_interpreter() -> None:
    """Rows without a key, with one, with equal ones; gradients as those of the definition."""
    done = run("-c", ENTMAX, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
    other, learned, wide = done.stdout.splitlines()
    assert other == "the form triton has alpha = 1.5 alone, got 1.2; take implicit"
    assert learned == "the form triton has alpha = 1.5 alone, got a learned one; take implicit"
    assert "a row may have 16,384 keys, these have 16,385; use another form" in wide


DELTA = """
import torch
from attnlab.mechanisms.recurrence.deltanet import DeltaNetOptions, naive, triton
from attnlab.core.kernels.delta_rule import delta_rule

for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
    for n, chunk in ((1, 64), (16, 3), (37, 16), (70, 64)):
        options = DeltaNetOptions(chunk=chunk, negative=True)
        sizes = (2, 3, n, 5), (2, 3, n, 5), (2, 3, n, 17), (2, 3, n)
        given = [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]
        outs = [form(*given, options=options) for form in (triton, naive)]
        up = torch.randn_like(outs[0])
        found, wanted = ([out, *torch.autograd.grad(out, given, up)] for out in outs)
        for mine, right in zip(found, wanted, strict=True):
            near = bound * right.abs().max().item()
            torch.testing.assert_close(mine, right, rtol=bound, atol=near)
q, k, v, b = (torch.randn(2, 3, 40, size, dtype=torch.float64) for size in (5, 5, 17, 1))
k = torch.nn.functional.normalize(k, dim=-1).requires_grad_()
out, S = delta_rule(q, k, v, b.sigmoid(), 16)
state = torch.zeros(2, 3, 5, 17, dtype=torch.float64)
for t in range(40):
    at = k[:, :, t, :, None]
    state = state + b.sigmoid()[:, :, t, None] * at @ (v[:, :, t, None] - at.mT @ state)
pair = [torch.autograd.grad(x.square().sum(), k)[0] for x in (S, state)]
torch.testing.assert_close(S, state)
torch.testing.assert_close(*pair)
print(tuple(out.shape))
try:
    torch.autograd.grad(delta_rule(q, k, v, b, 16)[0].sum(), k, create_graph=True)
except RuntimeError as error:
    print(error)
try:
    triton(*(torch.randn(1, 1, 3, width) for width in (65, 65, 4)), torch.randn(1, 1, 3))
except ValueError as error:
    print(error)
"""


@INSTALLED
def test_the_delta_rule_over_several_chunks_in_the_interpreter() -> None:
    """Values, the state after the last token, and the gradients of both."""
    done = run("-c", DELTA, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
    shape, twice, wide = done.stdout.splitlines()
    assert shape == "(2, 3, 40, 17)"
    assert "the triton form has first derivatives only" in twice
    assert "heads should be at most 64 wide, these are 65; use another form" in wide


# ---- compiled, as for a GPU that is not here


COMPILED = """
import itertools, json, sys
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from attnlab.core.kernels import delta_rule, entmax, linear_recurrence as recurrence, tiles

GPUS = {"A100": GPUTarget("cuda", 80, 32), "H100": GPUTarget("cuda", 90, 32)}
LISTS = {"mask_ptr": "*u8", "valid_ptr": "*u8", "count_ptr": "*i32", "list_ptr": "*i32",
         "table_ptr": "*i32", "lse_ptr": "*fp32", "delta_ptr": "*fp32"}

def compiled(kernel, number, constants, gpu):
    kinds = {
        name: "constexpr" if name in constants else LISTS.get(name, "*" + number)
        if name.endswith("_ptr") else "fp32" if name == "scale" else "i32"
        for name in kernel.arg_names
    }
    made = triton.compile(ASTSource(kernel, kinds, constants), target=GPUS[gpu])
    words = " ".join(f"{name}={value}" for name, value in constants.items())
    ptx = made.asm["ptx"]
    found[f"{kernel.__name__} {gpu} {number} {words}"] = {
        "shared": made.metadata.shared, "size": len(made.asm["cubin"]),
        "tensor cores": "mma.sync" in ptx or "wgmma" in ptx,
    }

found = {}
for gpu, backward, number in itertools.product(GPUS, (False, True), ("fp32", "fp64")):
    size = {"TOKENS": recurrence.TOKENS, "CHANNELS": recurrence.CHANNELS}
    compiled(recurrence.linear_recurrence, number, {"BACKWARD": backward} | size, gpu)
half = {"TILE": tiles.TILE, "D": 64, "E": 64, "KIND": tiles.KINDS[torch.bfloat16]}
single = {"TILE": tiles.TILE // 2, "D": 32, "E": 32, "KIND": tiles.KINDS[torch.float32]}
for kernel in (tiles.attend_rows, tiles.queries_gradient, tiles.keys_and_values_gradient):
    compiled(kernel, "bf16", half, "A100")
    compiled(kernel, "fp32", single, "A100")
for number in ("fp32", "fp64"):
    rows = {"ROWS": 2, "WIDE": entmax.HELD // 2}
    compiled(entmax.weights_of_rows, number, {"STEPS": entmax.STEPS} | rows, "A100")
    compiled(entmax.scores_gradient, number, rows, "A100")
whole = {"C": delta_rule.TOKENS, "D": delta_rule.WIDEST, "E": delta_rule.WIDEST}
for kernel in (delta_rule.chunk_by_chunk, delta_rule.chunks_gradient):
    compiled(kernel, "fp32", whole, "A100")
print(json.dumps(found))
"""


@INSTALLED
@pytest.mark.slow
def test_the_kernels_compile_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """To machine code, with tiles that fit in the shared memory of small GPUs, too; products of
    half precisions on tensor cores."""
    done = run("-c", COMPILED, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 20
    for name, made in found.items():
        assert made["size"] > 1000, name
        assert made["shared"] <= 99 * 1024, name
        assert made["tensor cores"] == ("bf16" in name), name
