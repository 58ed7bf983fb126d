"""A toy model and a toy task: nothing of attnlab but the training loop is under test here."""

import os
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests import warm_python

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ToyBatch:
    inputs: Tensor
    targets: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_padding: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "ToyBatch":
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: change(v) for n, v in values.items() if v is not None})

    def __getitem__(self, rows: slice) -> "ToyBatch":
        return self._each(lambda t: t[rows])

    def to(self, device: Any) -> "ToyBatch":
        return self._each(lambda t: t.to(device))


@dataclass(frozen=True)
class ToyTask:
    """Say each token's successor; rows differ in length and in the number of scored targets."""

    name: str = "successor"
    kind: str = "language_model"
    vocab: int = 13
    length: int = 7
    features: None = None
    classes: int | None = None
    with_source: bool = False
    scored: bool = True
    ragged: bool = True
    vocabulary: str = "[]"

    def batch(self, split: str, size: int, seed: int) -> ToyBatch:
        generator = torch.Generator().manual_seed(2 * seed + (split == "train"))
        shape = (size, self.length)
        inputs = torch.randint(self.vocab, shape, generator=generator)
        if self.kind == "classifier":
            return ToyBatch(inputs, inputs[:, 0] % self.classes)
        targets = (inputs + 1) % self.vocab
        if not self.scored:
            targets = torch.full_like(targets, -100)
        elif self.ragged:
            # Row 0 has few scored targets, so a mean of means would differ from the mean of all.
            keep = torch.rand(shape, generator=generator) < torch.linspace(0.1, 1, size)[:, None]
            keep[:, :1] = True
            targets = targets.where(keep, -100)
        padding = torch.arange(self.length) < torch.randint(
            3, max(3, self.length) + 1, (size, 1), generator=generator
        )
        targets = targets.where(padding, -100) if self.ragged else targets
        source = inputs.flip(1) if self.with_source else None
        return ToyBatch(inputs, targets, padding, source, padding if self.with_source else None)

    def model_options(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "kind": self.kind}


class ToyLayer(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(torch.tanh(self.up(self.norm(x)))))


class ToyModel(nn.Module):
    """Two layers without mixing; tied (or not) embedding and head; a switch `checkpoint`."""

    def __init__(
        self,
        vocab: int = 13,
        dim: int = 5,
        *,
        dropout: float = 0.0,
        tie: bool = True,
        classes: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocab, dim)
            self.layers = nn.ModuleList(ToyLayer(dim, dropout) for _ in range(2))
            self.head = nn.Linear(dim, classes or vocab, bias=False)
        if tie:
            self.head.weight = self.embedding.weight
        self.classes, self.checkpoint, self.recomputed = classes, False, 0

    def forward(
        self,
        inputs: Tensor,
        padding: Tensor | None = None,
        source: Tensor | None = None,
        source_padding: Tensor | None = None,
    ) -> Tensor:
        x = self.embedding(inputs)
        if source is not None:
            x = x + self.embedding(source).mean(1, keepdim=True)
        for layer in self.layers:
            if self.checkpoint and torch.is_grad_enabled():
                self.recomputed += 1
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.head(x.mean(1) if self.classes else x)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads would only wait for each other on models this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def toy() -> type[ToyModel]:
    return ToyModel


@pytest.fixture
def successor() -> type[ToyTask]:
    return ToyTask


@pytest.fixture
def weights() -> Callable[[nn.Module], dict[str, Tensor]]:
    """A copy of every parameter and buffer."""
    return lambda model: {n: t.detach().clone() for n, t in model.state_dict().items()}


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """A Python that has imported what trains; two processes of it differ in how they hash text."""
    prepared = (
        "import accelerate.commands.launch, torch.distributed.fsdp, torch._dynamo\n"
        "import attnlab.catalog, attnlab.train, tests.train.test_sharding\n"
        "attnlab.catalog.shelf()\n"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        warm_python.command(Path(folder), prepared) as warm,
    ):
        yield warm


@pytest.fixture
def script(tmp_path: Path, python: str) -> Callable[..., list[str]]:
    """Writes a program that knows ToyModel, ToyTask and fit; returns its command."""

    def write(body: str, name: str = "program.py") -> list[str]:
        head = f"""
            import sys
            sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
            import torch
            torch.set_num_threads(1)
            from conftest import ToyModel, ToyTask
            from attnlab.train import fit
        """
        path = tmp_path / name
        path.write_text(textwrap.dedent(head) + textwrap.dedent(body), encoding="utf-8")
        return [python, str(path)]

    return write


@pytest.fixture
def run() -> Callable[..., str]:
    """Runs a command to its end and returns what it wrote; fails with its errors if it failed."""

    def start(command: list[str], **environment: str) -> str:
        done = subprocess.run(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        return done.stdout

    return start
