"""Each system of images and language, small, with what it is trained on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.dino import Dino, DinoOptions
from attnlab.objectives.next_token import NextToken
from attnlab.objectives.semi_causal import SemiCausalOptions
from attnlab.systems.blip2 import FirstStage, ThreeLosses
from attnlab.systems.blip2_second import SecondStage
from attnlab.systems.donut import Donut, DonutOptions
from attnlab.systems.frozen import WithImages
from attnlab.systems.image_gpt import colour_clusters
from attnlab.systems.metalm import MetaLM, ReadApart
from attnlab.systems.palm_e import PaLME, PictureEncoder, StateEncoder
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.systems.vit import PatchClassifier, ViT, ViTOptions
from attnlab.systems.vlmo_layers import VLMoOptions
from attnlab.systems.vlmo_pairs import PairStage
from attnlab.systems.vlmo_training import ImageStage, TextStage, VLMoTraining, patches_as_pixels
from attnlab.tasks import task
from attnlab.tasks.captions import Captions
from attnlab.tasks.grid_world import MARKER as OBSERVED
from attnlab.tasks.grid_world import GridWorld
from attnlab.tasks.interleaved import MARKER, Interleaved
from attnlab.tasks.receipts import Receipts
from attnlab.tasks.scenes import Scenes
from attnlab.tasks.written import Written

SIZES: dict[str, Any] = {"dim": 24, "layers": 2, "heads": 3, "dropout": 0.1}
CAPTIONS, SENTENCES = Captions(patch=4), Interleaved(patch=4)
BOTH = Interleaved(written=("is", "larger"), shown=("is", "larger"), patch=4)
QUERIES = QFormerOptions(
    dim=24, layers=3, heads=3, hidden=40, queries=3, image_dim=24, max_len=7
)  # fmt: skip


class System(NamedTuple):
    """A model, what it is trained on, and by the beginnings of their names which of its parameters
    no gradient may reach: ``frozen`` ones, and those that are ``unused`` by this objective."""

    model: nn.Module
    task: Any
    objective: Any
    frozen: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def large(model: nn.Module) -> Any:
    """Weights so large that every part of the input matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.4)
    return model


def texts_and_images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Texts (2, 6) and images (2, 7, 11), each before its padding, which ends a row."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(17, (2, 6), generator=generator)
    source = torch.randn(2, 7, 11, generator=generator).double()
    padding, hides = torch.ones(2, 6, dtype=torch.bool), torch.ones(2, 7, dtype=torch.bool)
    padding[1, 4:], hides[0, 5:] = False, False
    return tokens, padding, source, hides


def language_model(vocab: int) -> TinyTransformer:
    return TinyTransformer(vocab, **SIZES, max_len=40)


def reader(kind: str = "classifier") -> TinyTransformer:
    return TinyTransformer(features=16, kind=kind, classes=10, max_len=16, **SIZES)


def vit() -> System:
    options = ViTOptions(image=8, patch=2, channels=1, hidden=32, classes=10, **SIZES)
    return System(PatchClassifier(ViT(options)), task("digits", unit="patches"), NextToken())


def image_gpt() -> System:
    pixels = Written()
    return System(TinyTransformer(**pixels.model_options(), **SIZES), pixels, NextToken())


def dino() -> System:
    """A teacher that follows nobody, so that it stays."""
    digits = task("digits", unit="patches")
    options = DinoOptions(local=1, outputs=7, momentum=1.0, centre_momentum=1.0)
    model = TinyTransformer(**digits.model_options(), **SIZES)
    teacher = ("objective.parts.encoder.", "objective.parts.teacher.")
    return System(model, digits, Dino(options), teacher, ("output.",))


def first_stage() -> System:
    encoder = TinyTransformer(**Scenes(patch=4).model_options(), **SIZES)
    made = FirstStage(encoder, CAPTIONS.vocab, QUERIES, shared=10)
    return System(made, CAPTIONS, ThreeLosses(), ("encoder.",))


def second_stage() -> System:
    encoder = TinyTransformer(**Scenes(patch=4).model_options(), **SIZES)
    made = SecondStage(encoder, QFormer(QUERIES), language_model(CAPTIONS.vocab))
    return System(made, CAPTIONS, NextToken(), ("encoder.", "language_model."))


def vlmo(stage: str) -> System:
    options = VLMoOptions(
        dim=24, layers=3, heads=3, hidden=40, pairs=1, max_len=7, features=16, patches=8
    )
    source = CAPTIONS.batch("train", 50, seed=0).source
    centres = colour_clusters(patches_as_pixels(source), 6, generator=torch.Generator())
    made = VLMoTraining(CAPTIONS.vocab, options, visual=6)
    heads = ("of_text.", "of_image.", "temperature", "pool.", "match.")
    image = ("body.patch.", "body.class_token", "body.image_positions", "hides", "visual.")
    text = ("body.table.", "body.text_", "before_words.", "word_bias")
    if stage == "image":
        still = (*heads, *text, *of_layers("experts.text.", "experts.pair."))
        return System(made, CAPTIONS, ImageStage(centres), still)
    if stage == "text":
        shared = ("attention", "norm.", "feed_scale", "experts.image.", "experts.pair.")
        still = (*heads, *image, "body.norm.", *of_layers(*shared))
        return System(made, CAPTIONS, TextStage(CAPTIONS.vocab), still)
    return System(made, CAPTIONS, PairStage(CAPTIONS.vocab), ("hides", "visual."))


def of_layers(*parts: str) -> tuple[str, ...]:
    """The beginnings of these parts' names in each of VLMo's three layers."""
    return tuple(f"body.layers.{i}.{part}" for i in range(3) for part in parts)


def with_images(sentences: Interleaved, **options: Any) -> System:
    model = WithImages(
        reader(), language_model(sentences.vocab), marker=MARKER, patches=4, **options
    )
    still = ("language_model.",) if model.freeze else ()
    return System(model, sentences, NextToken(), ("encoder.output.", *still))


def palm_e(observation: str, freeze: bool) -> System:
    world = GridWorld(observation)
    if observation == "picture":
        options = ViTOptions(image=8, patch=2, channels=3, hidden=32, **SIZES)
        encoder: nn.Module = PictureEncoder(ViT(options), 24)
    else:
        encoder = StateEncoder(world.numbers, 24)
    words = TinyTransformer(world.vocab, **SIZES, max_len=world.length)
    still = ("language_model.",) if freeze else ()
    return System(
        PaLME(encoder, words, marker=OBSERVED, freeze=freeze), world, NextToken(),
        ("encoder.vit.body.output.", *still),
    )  # fmt: skip


def metalm() -> System:
    text = task("copying")
    sizes = {**text.model_options(), **SIZES}
    encoder = TinyTransformer(**sizes | {"kind": "token_classifier", "classes": 2})
    model = MetaLM(encoder, TinyTransformer(**sizes))
    return System(model, text, ReadApart(SemiCausalOptions(spans=2)), ("encoder.output.",))


def donut(form: str) -> System:
    pages = Receipts(form, patch=12)
    sizes = {"length": pages.length, "patches": pages.patches, "numbers": 144, **SIZES}
    return System(Donut(DonutOptions(vocab=pages.vocab, **sizes)), pages, NextToken())


SYSTEMS: dict[str, Callable[[], System]] = {
    "ViT": vit,
    "Image GPT": image_gpt,
    "DINO": dino,
    "Q-Former, first stage": first_stage,
    "Q-Former, second stage": second_stage,
    "VLMo, images": lambda: vlmo("image"),
    "VLMo, texts": lambda: vlmo("text"),
    "VLMo, pairs": lambda: vlmo("pairs"),
    "Frozen": lambda: with_images(SENTENCES),
    "Frozen, mixed words": lambda: with_images(SENTENCES, of_words=True),
    "KOSMOS": lambda: with_images(BOTH, freeze=False),
    "PaLM-E": lambda: palm_e("named", False),
    "PaLM-E, frozen": lambda: palm_e("named", True),
    "PaLM-E, pictures": lambda: palm_e("picture", True),
    "MetaLM": metalm,
    "Donut, reading": lambda: donut("reading"),
    "Donut, parsing": lambda: donut("parsing"),
}
