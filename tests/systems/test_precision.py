"""The systems in bfloat16 and under autocast: near float32, with finite gradients where some are
due, and none in what is frozen."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.tiny import TinyTransformer
from attnlab.systems.blip2 import FirstStage, ThreeLosses
from attnlab.systems.blip2_second import SecondStage
from attnlab.systems.donut import Donut, DonutOptions
from attnlab.systems.frozen import WithImages
from attnlab.systems.palm_e import PaLME, PictureEncoder, StateEncoder
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.systems.vit import ViT, ViTOptions
from attnlab.tasks.captions import Captions
from attnlab.tasks.grid_world import MARKER as OBSERVED
from attnlab.tasks.grid_world import GridWorld
from attnlab.tasks.interleaved import MARKER, Interleaved
from attnlab.tasks.receipts import Receipts
from attnlab.tasks.scenes import Scenes

CAPTIONS, SENTENCES = Captions(patch=4), Interleaved(written=(), shown=("is",), patch=4)
SIZES = {"dim": 24, "layers": 2, "heads": 3}
QUERIES = QFormerOptions(**SIZES, hidden=40, queries=3, image_dim=16, max_len=7)

Answer = Callable[[nn.Module], Tensor]


def vit() -> tuple[nn.Module, Answer]:
    model = ViT(ViTOptions(**SIZES, image=8, patch=4, channels=1, hidden=32, classes=10))
    images = torch.rand(3, 1, 8, 8)
    return model, lambda m: m(images)


def qformer() -> tuple[nn.Module, Answer]:
    model = QFormer(QFormerOptions(**SIZES, hidden=40, queries=3, image_dim=16, vocab=9))
    image, tokens = torch.randn(3, 5, 16), torch.randint(9, (3, 4))

    def answer(m: nn.Module) -> Tensor:
        seen = m(image.to(m.queries.dtype), tokens)
        return torch.cat([seen.queries, seen.text], 1)

    return model, answer


def encoder() -> TinyTransformer:
    return TinyTransformer(**Scenes(patch=4).model_options(), dim=16, heads=2, layers=1)


def first_stage() -> tuple[nn.Module, Answer]:
    objective = ThreeLosses()
    asked = objective.prepare(CAPTIONS.batch("train", 9, seed=0), torch.Generator().manual_seed(0))

    def answer(m: nn.Module) -> Tensor:
        found = objective.each(objective.answers(m, asked), asked)
        assert all(loss.dtype == torch.float32 for loss in found.values())
        return torch.stack([found[name] for name in objective.losses])

    return FirstStage(encoder(), CAPTIONS.vocab, QUERIES, shared=10), answer


def language_model(vocab: int) -> TinyTransformer:
    return TinyTransformer(vocab, dim=20, heads=2, layers=1, max_len=16)


def second_stage() -> tuple[nn.Module, Answer]:
    batch = CAPTIONS.batch("train", 5, seed=0)
    model = SecondStage(encoder(), QFormer(QUERIES), language_model(CAPTIONS.vocab))
    return model, lambda m: m(batch.inputs, source=batch.source)


def with_images() -> tuple[nn.Module, Answer]:
    batch, sizes = SENTENCES.batch("train", 5, seed=0), {"heads": 2, "layers": 1}
    of_image = TinyTransformer(
        features=16, kind="classifier", classes=10, dim=12, max_len=4, **sizes
    )
    model = WithImages(of_image, language_model(SENTENCES.vocab), marker=MARKER, patches=4)
    given = {"source": batch.source, "source_padding": batch.source_padding}
    return model, lambda m: m(batch.inputs, batch.padding, **given)[batch.padding]


def palm_e(task: GridWorld, encoder: nn.Module) -> tuple[nn.Module, Answer]:
    batch = task.batch("train", 5, seed=0)
    words = TinyTransformer(task.vocab, dim=20, heads=2, layers=1, max_len=task.length)
    given = {"source": batch.source, "source_padding": batch.source_padding}
    model = PaLME(encoder, words, marker=OBSERVED)
    return model, lambda m: m(batch.inputs, batch.padding, **given)[batch.padding]


def palm_e_of_objects() -> tuple[nn.Module, Answer]:
    task = GridWorld("objects")
    return palm_e(task, StateEncoder(task.numbers, 20))


def palm_e_of_pictures() -> tuple[nn.Module, Answer]:
    of_picture = ViT(ViTOptions(**SIZES, image=8, patch=2, channels=3, hidden=32))
    return palm_e(GridWorld("picture"), PictureEncoder(of_picture, 20))


def donut() -> tuple[nn.Module, Answer]:
    pages = Receipts(patch=12)
    batch = pages.batch("train", 5, seed=0)
    model = Donut(
        DonutOptions(
            vocab=pages.vocab, length=pages.length, patches=pages.patches, numbers=144, **SIZES
        )
    )
    return model, lambda m: m(batch.inputs, batch.padding, source=batch.source)[batch.padding]


@pytest.fixture(
    params=[
        vit, qformer, first_stage, second_stage, with_images, palm_e_of_objects,
        palm_e_of_pictures, donut,
    ]
)  # fmt: skip
def system(request) -> tuple[nn.Module, Answer]:
    torch.manual_seed(0)
    return request.param()


def near(found: Tensor, wanted: Tensor) -> None:
    """Bfloat16 has eight bits: some hundredths of the largest value after a few layers."""
    error = (found.float() - wanted).abs().max()
    assert 0 < error < 0.06 * wanted.abs().max()


def test_bfloat16_is_near_float32(system):
    model, answer = system
    wanted = answer(model).detach()
    found = answer(copy.deepcopy(model).bfloat16())
    assert found.dtype in (torch.bfloat16, torch.float32)  # of logits, or of losses
    near(found, wanted)


def test_autocast_is_near_float32_and_so_are_its_gradients(system):
    model, answer = system

    def graded() -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        out = answer(model)
        out.float().square().sum().backward()
        return out.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    wanted, exact = graded()
    with torch.autocast("cpu", torch.bfloat16):
        found, rounded = graded()
    near(found, wanted)
    assert rounded.keys() == exact.keys()
    assert {n for n, p in model.named_parameters() if not p.requires_grad}.isdisjoint(rounded)
    assert all(grad.isfinite().all() for grad in rounded.values())
    flat = [torch.cat([each[n].flatten() for n in exact]) for each in (rounded, exact)]
    assert torch.cosine_similarity(*flat, dim=0) > 0.99
