"""Blocks of papers by their names in a TinyTransformer."""

from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.models import evolved, mobilebert
from attnlab.models.counts import count
from attnlab.models.inputs import Reading
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.copying import Copying
from attnlab.tasks.digits import Digits
from attnlab.train import fit

NAMES = ("mobilebert", "ib_bert", "evolved")
SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 2, "max_len": 9}
PADDING = torch.arange(7) < torch.tensor([[7], [4]])


def model(block: str, **changes: Any) -> Any:
    torch.manual_seed(1)
    given = {**SMALL, "vocab": 11, "kind": "token_classifier", "classes": 3, "block": block}
    return TinyTransformer(**given | changes).double().eval()


@pytest.mark.parametrize("block", NAMES)
def test_the_blocks_stand_between_embedding_and_output(block: str) -> None:
    ours, tokens = model(block), torch.arange(14).view(2, 7) % 11
    kind = evolved.EncoderCell if block == "evolved" else mobilebert.Layer
    x = ours._embedded(Reading.of(ours, tokens, PADDING))
    for part in ours.encoder.blocks:
        assert isinstance(part.inside, kind)
        x = part.inside(x, PADDING)
    assert isinstance(
        ours.encoder.norm, torch.nn.LayerNorm if block == "evolved" else torch.nn.Identity
    )
    torch.testing.assert_close(ours(tokens, PADDING), ours.output(ours.encoder.norm(x)))


def test_sizes_of_a_mobilebert_block() -> None:
    at_512 = TinyTransformer(
        vocab=9, classes=2, kind="classifier", dim=512, heads=4, layers=1, block="mobilebert"
    )
    inside: Any = at_512.encoder.blocks[0].inside  # type: ignore[union-attr]
    assert inside.sizes == mobilebert.MOBILE
    teacher: Any = model("ib_bert").encoder.blocks[0].inside
    assert (teacher.sizes.inside, teacher.sizes.hidden, teacher.sizes.feeds) == (32, 128, 1)
    own = {"inside": 6, "feeds": 3, "reads": "bottleneck", "norm": "layer"}
    chosen: Any = model("mobilebert", block_options=own, hidden=5).encoder.blocks[0].inside
    assert chosen.sizes == mobilebert.MobileBERTOptions(dim=16, heads=2, hidden=5, **own)


@pytest.mark.parametrize("block", NAMES)
def test_padding_has_no_influence_and_everything_is_looked_at(block: str) -> None:
    ours, tokens = model(block), torch.arange(14).view(2, 7) % 11
    changed = tokens.clone()
    changed[~PADDING] = 5
    torch.testing.assert_close(ours(changed, PADDING)[PADDING], ours(tokens, PADDING)[PADDING])
    with attnlab.watch(ours) as seen:
        ours(tokens, PADDING)
    records = list(seen)
    assert len(records) == SMALL["layers"]
    for each in records:
        assert each.weights.shape == (2, 2, 7, 7)
        assert (each.weights[1, ..., 4:] == 0).all()
    rows = count(ours, 7)
    assert rows[-1].parameters == sum(p.numel() for p in ours.parameters())
    assert sum(row.flops for row in rows[:-1]) == rows[-1].flops


@pytest.mark.parametrize(
    ("block", "options", "least"),
    [
        ("mobilebert", {"norm": "layer"}, 0.1),
        ("ib_bert", {"inside": 32}, 0.3),
        ("evolved", None, 0.5),
    ],
)
def test_they_train(block: str, options: dict[str, Any] | None, least: float) -> None:
    task, given = Digits(unit="patches"), {"hidden": 64} if options else {}
    torch.manual_seed(0)
    ours = TinyTransformer(
        **task.model_options(), dim=32, heads=2, layers=2, block=block, block_options=options,
        **given,
    )  # fmt: skip
    losses = fit(ours, task, 200, learning_rate=5e-3, progress=False, batch_size=32).column("loss")
    assert sum(losses[-10:]) / 10 < sum(losses[:10]) / 10 - least


def test_an_encoder_decoder_of_cells_trains_and_writes() -> None:
    task = Copying(4, 6, kind="encoder_decoder")
    torch.manual_seed(0)
    ours = TinyTransformer(**task.model_options(), dim=32, heads=2, layers=1, block="evolved")
    losses = fit(ours, task, 60, learning_rate=5e-3, progress=False).column("loss")
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    batch = task.batch("validation", 1, seed=0)
    out = attnlab.generate(ours, batch.inputs[:, :1], 3, source=batch.source)
    assert out.shape == (1, 4)


def test_layers_that_share_everything_are_one_block(tmp_path: Path) -> None:
    ours = model("evolved", depth="shared")
    assert len({id(block) for block in ours.encoder.blocks}) == 1
    ours.save(tmp_path / "a.safetensors")
    again = TinyTransformer.load(tmp_path / "a.safetensors").double().eval()
    assert again.config == ours.config
    tokens = torch.arange(7)[None]
    torch.testing.assert_close(again(tokens), ours.float().double()(tokens))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block": "mobile"}, "there is no block 'mobile'; did you mean 'mobilebert'?"),
        ({"block": "mobilebert", "kind": "language_model", "classes": None}, "has no decoder"),
        (
            {"block": "evolved", "kind": "language_model", "classes": None},
            "no decoder without a source",
        ),
        ({"block": "evolved", "feed": "gated"}, "leave feed out"),
        ({"block": "evolved", "attention": "linear", "join": "rezero"}, "attention and join out"),
        ({"block": "evolved", "hidden": 7}, "leave hidden out"),
        ({"block": "evolved", "block_options": {"feeds": 2}}, "has no option 'feeds'"),
        ({"block": "mobilebert", "block_options": {"fees": 2}}, "did you mean 'feeds'"),
        ({"block": "mobilebert", "block_options": {"inside": 7}}, "heads should divide inside=7"),
        ({"block": "layers", "block_options": {"feeds": 2}}, "give block=… too"),
        ({"block": "evolved", "depth": "reversible"}, "cannot be taken apart"),
        ({"block": "evolved", "depth": "shared", "depth_options": {"what": "feed"}}, "taken apart"),
        ({"block": "evolved", "positions": "rope"}, "goes into attention layers"),
        ({"block": "mobilebert", "dropout": 0.1}, "has no dropout"),
        ({"block": "evolved", "dropout": 0.1}, "has no dropout"),
        ({"block": "evolved", "dim": 15, "heads": 3}, "dim should be even"),
    ],
)
def test_what_a_block_decides_cannot_be_chosen_beside_it(given: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        model(**given)


def test_a_block_is_told_no_structure() -> None:
    ours = model("evolved").encoder.blocks[0]
    with pytest.raises(ValueError, match="structure is for attention that is told"):
        ours(torch.zeros(1, 3, 16, dtype=torch.float64), structure=object())
