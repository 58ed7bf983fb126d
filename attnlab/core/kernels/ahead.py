"""Kernels compiled for a GPU that is not here: what they would need of it.

Triton's compiler needs no GPU. It needs a process of its own where the kernels of this one are
interpreted, since Triton decides when it is imported which of the two it does.

    compiled(attend_rows, {"q_ptr": "*bf16", "n": "i32"}, [{"TILE": 64}])[0].shared    # bytes
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnlab.core.kernels import _missing
from attnlab.core.suggest import choose

HEAD = "import triton\nimport triton.language as tl\n\n"


@dataclass(frozen=True)
class Gpu:
    """What a kernel finds on a GPU.

    ``capability`` is its compute capability, 80 for 8.0; ``shared`` the bytes of shared memory that
    one program may use; both from the table of compute capabilities in NVIDIA's CUDA C++
    Programming Guide.
    """

    capability: int
    shared: int


GPUS = {
    "RTX 3090": Gpu(86, 99 * 2**10),
    "A100": Gpu(80, 163 * 2**10),
    "H100": Gpu(90, 227 * 2**10),
}


@dataclass(frozen=True)
class Compiled:
    """A kernel for a GPU: bytes of ``shared`` memory of a program, its ``warps`` of 32 threads
    each, and its instructions, ``ptx``."""

    shared: int
    warps: int
    ptx: str


def compiled(
    kernel: Any,
    kinds: Mapping[str, str],
    sizes: Sequence[Mapping[str, int]],
    *,
    gpu: str = "A100",
) -> list[Compiled]:
    """The kernel, compiled once for each of the ``sizes`` of its ``tl.constexpr`` arguments.

    ``kinds`` has Triton's names of the other arguments' types: ``"*fp32"`` is a pointer to
    float32, ``"i32"`` a whole number. Both are taken to be multiples of 16, as Triton's launcher
    finds them where widths are. The kernel should use no names but its own, ``triton`` and ``tl``.

    Raises ValueError where Triton is not installed or cannot compile it, with the reason.
    """
    target = choose("gpu", gpu, GPUS)
    if reason := _missing():
        raise ValueError(f"nothing can be compiled here: {reason}")
    source = HEAD + textwrap.dedent(inspect.getsource(kernel.fn))
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one_kernel.py").write_text(source, encoding="utf-8")
        asked = [folder, kernel.fn.__name__, target.capability, dict(kinds), [*map(dict, sizes)]]
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(asked), capture_output=True, text=True, check=False,
            env={**clean, "TRITON_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word of it"])[-1]
        raise ValueError(f"triton cannot compile {kernel.fn.__name__} for {gpu} ({said})")
    return [Compiled(**each) for each in json.loads(done.stdout)]


def _compile(
    folder: str, name: str, capability: int, kinds: dict[str, str], sizes: list[dict[str, int]]
) -> list[Compiled]:
    """In the other process: Triton is imported without its interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sys.path.insert(0, folder)
    kernel = getattr(__import__("one_kernel"), name)
    found = []
    for constants in sizes:
        signature = {x: "constexpr" if x in constants else kinds[x] for x in kernel.arg_names}
        aligned = [["tt.divisibility", 16]]
        whole = [x for x, kind in enumerate(signature.values()) if kind[0] in "*i"]
        source = ASTSource(kernel, signature, constants, {(x,): aligned for x in whole})
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        found.append(Compiled(made.metadata.shared, made.metadata.num_warps, made.asm["ptx"]))
    return found


def main() -> None:
    try:
        asked = json.load(sys.stdin)
    except ValueError:
        sys.exit("usage: compiled() of this file starts it and tells it the kernel")
    sys.stdout.write(json.dumps([asdict(each) for each in _compile(*asked)]))


if __name__ == "__main__":
    main()
