"""Kernels in Triton: where they refuse, the claims in its interpreter, and compiled for GPUs.

Triton decides when it is imported whether it interprets or compiles, so each is a process of its
own. Nothing here needs a GPU; ``tests/test_on_a_gpu.py`` runs the same forms on one.
"""

import importlib.util
import json
import os
import re
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
INTERPRETED = Path(__file__).with_name("test_in_the_interpreter.py")
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


# ---- in the interpreter


@INSTALLED
@pytest.mark.slow
def test_what_is_claimed_holds_in_the_interpreter() -> None:
    """The claims of every form in Triton and the tests of tests/core/test_in_the_interpreter.py, of
    which one process collects no more than these. Every size is computed in float64, one of them in
    the other precisions: the interpreter's arithmetic is NumPy's in each."""
    every_size = "triton and not " + " and not ".join(
        f"{number}-{size}" for number in ("float32", "bfloat16") for size in ("cached", "one")
    )
    done = run(
        *("-m", "pytest", "-v", "-n", "0", "-p", "no:nbval", "-p", "no:cacheprovider"),
        *(str(INTERPRETED), "-k", every_size),
        TRITON_INTERPRET="1",
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    for card in WRITTEN:
        assert f"test_form_equals_naive[{card.name}-triton-0-float64-self] PASSED" in done.stdout
    written = re.findall("^def (test_triton_.*)\\(", INTERPRETED.read_text(encoding="utf-8"), re.M)
    assert len(written) > 3
    for name in written:
        assert f"{name} PASSED" in done.stdout


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
