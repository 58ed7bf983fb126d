"""Training in segments: the state is carried on, gradients end, and a run goes on as any other."""

import pytest
import torch
from torch import nn

from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.next_token import NextToken
from attnlab.tasks import task
from attnlab.train import CheckpointError, evaluate, fit, load_checkpoint
from attnlab.train.segments import check_segments, segment_losses

COPYING = task("copying", items=6, symbols=5)  # 12 positions
OPTIONS = {"batch_size": 4, "progress": False, "device": "cpu"}


def model(attention: str = "full", **options) -> TinyTransformer:
    torch.manual_seed(0)
    sizes = {"dim": 12, "heads": 2, "layers": 2, **COPYING.model_options()}
    return TinyTransformer(attention=attention, attention_options=options or None, **sizes).double()


def losses(history) -> list[float]:
    return history.column("loss")


def test_reading_on_gives_the_logits_of_the_whole() -> None:
    made, tokens = model(), torch.randint(5, (2, 12))
    parts, state = [], None
    for piece in tokens.split([5, 1, 6], dim=1):
        logits, state = made.advance(piece, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), made(tokens))
    torch.testing.assert_close(made.step(tokens)[0], made(tokens)[:, -1])


def test_one_segment_is_training_as_ever() -> None:
    plain, whole = (fit(model(), COPYING, 3, **OPTIONS, **more) for more in ({}, {"segment": 12}))
    torch.testing.assert_close(losses(whole), losses(plain))


def test_gradients_end_where_a_segment_begins() -> None:
    made, batch, seen = model(), COPYING.batch("train", 3, seed=0), []

    def keep(part, given, out) -> None:
        out.retain_grad()
        seen.append(out)

    made.embedding.register_forward_hook(keep)
    _, second = segment_losses(made, batch, 8)
    second.backward()
    assert [x.shape[1] for x in seen] == [8, 4]
    assert seen[0].grad is None
    assert (seen[1].grad != 0).any()


def test_a_layer_whose_gradients_end_there_anyway_trains_the_same() -> None:
    """The Memorizing Transformer, with its own segments."""
    options = {"segment": 4, "cache": 4, "memory": 8, "neighbours": 2}
    made = [model("memorizing_transformer", **options) for _ in range(2)]
    whole = fit(made[0], COPYING, 3, **OPTIONS)
    cut = fit(made[1], COPYING, 3, segment=4, **OPTIONS)
    torch.testing.assert_close(losses(cut), losses(whole))
    other = fit(model("memorizing_transformer", **options), COPYING, 3, segment=3, **OPTIONS)
    assert losses(other)[0] == pytest.approx(losses(whole)[0])
    assert losses(other)[2] != pytest.approx(losses(whole)[2], rel=1e-9)
    assert evaluate(made[0], COPYING).loss == pytest.approx(evaluate(made[1], COPYING).loss)


def test_a_run_goes_on_bit_for_bit(tmp_path) -> None:
    straight = fit(model(), COPYING, 4, segment=5, warmup=1, **OPTIONS)
    for stop in (lambda state: state.step < 2, lambda state: True):
        resumed = fit(
            model(), COPYING, 4, segment=5, warmup=1, folder=tmp_path, callbacks=[stop], **OPTIONS
        )
    assert losses(resumed) == losses(straight)
    assert load_checkpoint(tmp_path).step == 4
    with pytest.raises(CheckpointError, match="other settings"):
        fit(model(), COPYING, 5, segment=4, warmup=1, folder=tmp_path, **OPTIONS)


def test_what_cannot_be_read_in_segments_is_refused() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, tokens, padding=None):
            return self.inner(tokens, padding)

    with pytest.raises(ValueError, match=r"by advance\(tokens, state\)"):
        fit(Plain(), COPYING, 1, segment=4, **OPTIONS)
    both = task("copying", items=6, symbols=5, kind="encoder_decoder")
    sizes = {"dim": 12, "heads": 2, "layers": 1, **both.model_options()}
    with pytest.raises(ValueError, match="a padding or a source"):
        fit(TinyTransformer(**sizes), both, 1, segment=4, **OPTIONS)
    with pytest.raises(ValueError, match="trains in one process, and there are 2"):
        check_segments(model(), COPYING, NextToken(), 2)
    with pytest.raises(ValueError, match="segment should be"):
        fit(model(), COPYING, 1, segment=0, **OPTIONS)
