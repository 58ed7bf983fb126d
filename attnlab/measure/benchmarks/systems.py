"""Systems: a Vision Transformer and the first stage of BLIP-2's Q-Former, beside Transformers'.

Both have the same weights and give the same values (``tests/systems``). What is compared is time of
the processor, in rounds in which each is called once: other programs change it less than the clock.

The Q-Former's first stage is three losses and four passes, which are timed one by one and together:

    read         the queries and an image, which two of the losses share
    write        the words alone
    matching     queries, words and image; three pairs for each image
    captioning   the words, which see the queries and the words before them

Transformers' model has no losses. It is called with the masks and the texts of the four passes; as
its captioning computes queries and words together, it is timed beside our `read` and `write`, and
together they share the first pass.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

PASSES = ("forward", "forward and backward")
WORDS, VOCAB = 32, 1000


class Side(NamedTuple):
    """What one of the two computes, and with which parameters."""

    calls: dict[str, Callable[[], Tensor]]
    parameters: list[nn.Parameter]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row for each size, pass and direction."""
    if not find_spec("transformers"):
        yield Row("Hugging Face / ours", None, "×", note="not installed: pip install transformers")
        return
    repeats = 2 if quick else 15
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for figure, sides in sizes(quick):
            yield from _beside(figure, sides, repeats, threads)


def sizes(quick: bool) -> Iterator[tuple[str, tuple[Side, Side]]]:
    """What is timed: its name, and ours and theirs."""
    if quick:
        yield "ViT of width 24, 9 patches", vits(24, 2, 2, 48)
        yield "Q-Former of width 24", qformers(24, 2, 2, image=(9, 20), batch=2, words=6)
        return
    yield "ViT of width 192, 196 patches", vits(192, 12, 3, 224)
    yield "ViT of width 768 (2 of 12 layers), 196 patches", vits(768, 2, 12, 224)
    yield "Q-Former of width 256", qformers(256, 6, 4, image=(64, 256), batch=16, words=16)
    printed = qformers(768, 2, 12, image=(257, 1408), batch=4, words=WORDS)
    yield "Q-Former of width 768 (2 of 12 layers)", printed


def _beside(figure: str, sides: Sequence[Side], repeats: int, threads: int) -> Iterator[Row]:
    ours, theirs = sides
    for what in ours.calls:
        for which in PASSES:
            run = partial(_run, which=which)
            calls = {"ours": partial(run, what, ours), "Hugging Face": partial(run, what, theirs)}
            mine, its = compare(calls, repeats=repeats, warmup=1, threads=threads)
            name = f"Hugging Face / ours, {figure}, {f'{what}, ' if what else ''}{which}"
            work = "time of the processor; the same weights and values"
            least = 1.0 if what in ("", "stage one") else None
            yield ratio(name, its, mine, work=work, at_least=least, of_processor=True)


def _run(what: str, side: Side, *, which: str) -> object:
    if which == "forward":
        with torch.no_grad():
            return side.calls[what]()
    return torch.autograd.grad(side.calls[what]().sum(), side.parameters, allow_unused=True)


# ---- the models


def vits(dim: int, layers: int, heads: int, image: int, batch: int = 4) -> tuple[Side, Side]:
    """A Vision Transformer with patches of 16 × 16, on images of brightness from 0 to 1."""
    from transformers import ViTConfig, ViTForImageClassification

    from attnlab.systems.vit import from_transformers

    config = ViTConfig(
        hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * dim, image_size=image,
    )  # fmt: skip
    theirs: Any = ViTForImageClassification(config).eval()
    ours, images = from_transformers(theirs), torch.rand(batch, 3, image, image)
    return (
        Side({"": partial(ours, images)}, list(ours.parameters())),
        Side({"": lambda: theirs(2 * images - 1).logits}, list(theirs.parameters())),
    )


def qformers(
    dim: int, layers: int, heads: int, *, image: tuple[int, int], batch: int, words: int
) -> tuple[Side, Side]:
    """A Q-Former with 32 queries, on so many images of (m, width), and on texts of which the last
    quarter is padding."""
    from transformers import Blip2QFormerConfig, Blip2QFormerModel
    from transformers.models.blip_2.modeling_blip_2 import Blip2TextEmbeddings

    from attnlab.systems.qformer_released import from_transformers

    config = Blip2QFormerConfig(
        vocab_size=VOCAB, hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * dim, max_position_embeddings=words, encoder_hidden_size=image[1],
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, use_qformer_text_input=True,
    )  # fmt: skip
    theirs, embedded = Blip2QFormerModel(config).eval(), Blip2TextEmbeddings(config).eval()
    ours = from_transformers(theirs, torch.randn(32, dim) * 0.02, embedded)
    seen, tokens = torch.randn(batch, *image), torch.randint(VOCAB, (batch, words))
    real = torch.arange(words).expand(batch, -1) < words * 3 // 4
    return _ours(ours, seen, tokens, real), _theirs(ours, theirs, embedded, seen, tokens, real)


def _ours(model: Any, image: Tensor, tokens: Tensor, real: Tensor) -> Side:
    triples = [each.repeat(3, *[1] * (each.ndim - 1)) for each in (image, tokens, real)]

    def read() -> Tensor:
        return _numbers(model.read(image).queries)

    def write() -> Tensor:
        return _numbers(model.write(tokens, real), real)

    def matching() -> Tensor:
        return _numbers(model(*triples).queries)

    def captioning(read: Any = None) -> Tensor:
        read = model.read(image) if read is None else read
        return _numbers(model.write(tokens, real, read), real)

    def stage() -> Tensor:
        found = model.read(image)
        return _numbers(found.queries) + write() + matching() + captioning(found)

    calls = {"read": read, "write": write, "matching": matching, "captioning": captioning}
    return Side({**calls, "stage one": stage}, list(model.parameters()))


def _theirs(
    ours: Any, model: Any, embedded: nn.Module, image: Tensor, tokens: Tensor, real: Tensor
) -> Side:
    from attnlab.systems.qformer import visible

    queries, q = nn.Parameter(ours.queries.detach().clone()), len(ours.queries)
    masks = {"captioning": visible("captioning", q, real)}
    masks["matching"] = torch.cat([real.new_ones(len(real), q), real], 1).repeat(3, 1)

    def both(mask: str, times: int) -> Tensor:
        x = queries.expand(times * len(image), -1, -1)
        words = embedded(tokens.repeat(times, 1), query_embeds=x)
        seen = image.repeat(times, 1, 1)
        out: Tensor = model(
            words, query_length=q, attention_mask=masks[mask], encoder_hidden_states=seen
        ).last_hidden_state
        return out

    def read() -> Tensor:
        x = queries.expand(len(image), -1, -1)
        return _numbers(model(x, encoder_hidden_states=image).last_hidden_state)

    def write() -> Tensor:
        out = model(embedded(tokens), query_length=0, attention_mask=real).last_hidden_state
        return _numbers(out, real)

    def matching() -> Tensor:
        return _numbers(both("matching", 3)[:, :q])

    def captioning() -> Tensor:
        return _numbers(both("captioning", 1)[:, q:], real)

    def stage() -> Tensor:
        out = both("captioning", 1)
        return _numbers(out[:, :q]) + _numbers(out[:, q:], real) + write() + matching()

    calls = {"read": read, "write": write, "matching": matching, "captioning": captioning}
    parameters = [queries, *model.parameters(), *embedded.parameters()]
    return Side({**calls, "stage one": stage}, parameters)


def _numbers(vectors: Tensor, real: Tensor | None = None) -> Tensor:
    """One number that depends on every entry of what is real: the mean of all sines."""
    s = vectors.sin()
    return s.mean() if real is None else (s * real[..., None]).sum() / s.numel()
