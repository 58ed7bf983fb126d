"""Decoder layers that read several of the last encoder layers, as HAT's supernet chooses."""

from typing import Any

import pytest
import torch

from attnlab.models.inputs import Reading
from attnlab.models.supernet import Sizes, Space, Supernet, network
from attnlab.tasks.copying import Copying
from attnlab.train import fit

SPACE = Space(dim=(8, 12), hidden=(5, 7), heads=(2,), layers=(3,), source=(1, 2, 3))
OPTIONS: dict[str, Any] = {"kind": "encoder_decoder", "vocab": 13, "max_len": 16}
SIZES = Sizes(12, (7, 5, 7), (2, 2, 2), (1, 3, 2))
SOURCE = torch.arange(22).view(2, 11) % 13
TOKENS = torch.arange(14).view(2, 7) % 13
PADDING = torch.arange(11) < torch.tensor([[11], [6]])


def model(sizes: Sizes = SIZES, space: Space = SPACE) -> Any:
    torch.manual_seed(1)
    return network(space, sizes, **OPTIONS).double().eval()


def test_the_space_counts_and_holds_the_choices() -> None:
    every = [*SPACE]
    assert len(every) == len({*every}) == len(SPACE) == 2 * (2 * 1 * 3) ** 3
    assert SIZES in SPACE
    assert SPACE.largest.source == (3, 3, 3)
    assert Sizes(12, (7, 5, 7), (2, 2, 2), (1, 4, 2)) not in SPACE
    assert Sizes(8, (5,), (2,)).source == (1,)


def test_a_layer_reads_the_last_k_layers_side_by_side() -> None:
    """Computed by hand from the outputs of the encoder's blocks; padding of each of them."""
    ours = model()
    x, seen = ours._embedded(Reading.of(ours, SOURCE, PADDING)), []
    for block in ours.encoder.blocks:
        seen.append(x := block(x, PADDING))
    vectors = [ours.encoder.norm(seen[2]), seen[1], seen[0]]
    y = ours._embedded(Reading.of(ours, TOKENS, None))
    for block, k in zip(ours.decoder.blocks, SIZES.source, strict=True):
        plain = block.cross.attention
        y = block.attention_residual(y, block.attention)
        given = {
            "context": torch.cat(vectors[:k], dim=1),
            "context_padding": torch.cat([PADDING] * k, dim=1),
        }
        y = block.cross_residual(y, lambda x, f=plain, g=given: f(x, **g))
        y = block.feed_forward_residual(y, block.feed_forward)
    expected = ours.logits(ours.decoder.norm(y))
    out = ours(TOKENS, source=SOURCE, source_padding=PADDING)
    torch.testing.assert_close(out, expected)


def test_one_layer_each_is_the_usual_model_and_more_layers_are_another() -> None:
    usual = Space(dim=(8, 12), hidden=(5, 7), heads=(2,), layers=(3,))
    one = Sizes(12, (7, 5, 7), (2, 2, 2))
    ours, plain, more = model(one), model(one, usual), model()
    assert {*dict(plain.named_parameters())} == {
        name.replace("cross.attention.", "cross.") for name, _ in ours.named_parameters()
    }
    out = ours(TOKENS, source=SOURCE)
    torch.testing.assert_close(out, plain(TOKENS, source=SOURCE))
    assert not torch.allclose(more(TOKENS, source=SOURCE), out)
    assert sum(p.numel() for p in more.parameters()) == sum(p.numel() for p in ours.parameters())


def test_padding_and_the_future_have_no_influence() -> None:
    ours, changed = model(), SOURCE.clone()
    changed[~PADDING] = 4
    outs = [ours(TOKENS, source=each, source_padding=PADDING) for each in (SOURCE, changed)]
    torch.testing.assert_close(*outs)
    later = TOKENS.clone()
    later[:, 4:] = 3
    torch.testing.assert_close(
        ours(later, source=SOURCE)[:, :4], ours(TOKENS, source=SOURCE)[:, :4]
    )


def test_decoding_step_by_step_is_the_same() -> None:
    ours, state = model(), None
    memory = ours.encode(SOURCE, PADDING)
    assert memory.shape == (2, 11, 3 * 12)
    whole = ours(TOKENS, source=SOURCE, source_padding=PADDING)
    for i in range(TOKENS.shape[1]):
        out, state = ours.step(TOKENS[:, i : i + 1], state, memory=memory, memory_padding=PADDING)
        torch.testing.assert_close(out, whole[:, i])


def test_the_supernet_trains_with_the_choices_and_inherits_them() -> None:
    task = Copying(4, 6, kind="encoder_decoder")
    torch.manual_seed(0)
    ours = Supernet(SPACE, **task.model_options())
    losses = fit(ours, task, 60, learning_rate=1e-2, progress=False).column("loss")
    assert sum(losses[-10:]) < sum(losses[:10])
    ours.eval()
    batch = task.batch("validation", 3, seed=0)
    given = {"source": batch.source}
    sizes = Sizes(8, (5, 7, 5), (2, 2, 2), (2, 1, 3))
    own = ours.inherited(sizes)(batch.inputs, **given)
    torch.testing.assert_close(own, ours(batch.inputs, sizes=sizes, **given))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Space(dim=(8,), hidden=(4,), heads=(2,), layers=(2, 3), source=(1, 3)),
            "source should be at most 2, the fewest layers of an encoder, got 3",
        ),
        (
            lambda: network(SPACE, SIZES, kind="classifier", vocab=5, classes=3),
            "kind='classifier' has no cross-attention; leave source out of the space",
        ),
        (
            lambda: network(SPACE, SIZES, **OPTIONS, depth="layer_drop"),
            "needs depth='plain', whose layers run one after the other, got LayerDrop",
        ),
    ],
)
def test_bad_calls_are_answered_in_sentences(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
