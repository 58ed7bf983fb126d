"""Kernels compiled for a GPU that is not here: what they need of it, and errors in sentences."""

import pytest

from attnlab.core.kernels import ahead
from attnlab.core.kernels.ahead import GPUS, compiled

triton = pytest.importorskip("triton", reason="triton is not installed (Linux alone has it)")
tl = pytest.importorskip("triton.language")

SIDE = 16


@triton.jit
def product(x_ptr, y_ptr, out_ptr, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    inside = at[:, None] * TILE + at[None, :]
    x, y = tl.load(x_ptr + inside), tl.load(y_ptr + inside)
    tl.store(out_ptr + inside, tl.dot(x, y))


@triton.jit
def with_a_stranger(x_ptr):
    tl.store(x_ptr, SIDE)


KINDS = {"x_ptr": "*bf16", "y_ptr": "*bf16", "out_ptr": "*fp32"}


def test_larger_tiles_need_more_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the kernels of this process are interpreted: Triton is imported anew."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    small, large = compiled(product, KINDS, [{"TILE": 16}, {"TILE": 64}], gpu="A100")
    assert 0 < small.shared < large.shared <= GPUS["A100"].shared
    assert small.warps == 4
    for one in (small, large):
        assert ".target sm_80" in one.ptx
        assert ".entry product(" in one.ptx
        assert "mma.sync" in one.ptx


def test_it_is_compiled_for_the_gpu_that_is_named() -> None:
    (one,) = compiled(product, KINDS, [{"TILE": 32}], gpu="RTX 3090")
    assert ".target sm_86" in one.ptx


def test_what_cannot_be_compiled_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no gpu 'A10'; did you mean 'A100'"):
        compiled(product, KINDS, [{"TILE": 16}], gpu="A10")
    with pytest.raises(ValueError, match=r"cannot compile with_a_stranger for A100 .*SIDE"):
        compiled(with_a_stranger, {"x_ptr": "*fp32"}, [{}])
    monkeypatch.setattr(ahead, "_missing", lambda: "the package triton is not installed")
    with pytest.raises(ValueError, match="nothing can be compiled here: the package triton is not"):
        compiled(product, KINDS, [{"TILE": 16}])
