"""StreamingLLM: the tokens that are kept, their numbers in the cache, the loop of a cache."""

import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.sparse.attention import PatternAttention
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.streaming import StreamingAttention, StreamingOptions
from attnlab.mechanisms.positions.rope import RotaryPositions

DIM, HEADS, S, W = 12, 3, 2, 4
OPTIONS = StreamingOptions(sinks=S, window=W)
FORMS = ("naive", "blocked")


def layer(form: str = "blocked", *, sinks: int = S, positions: bool = True) -> StreamingAttention:
    torch.manual_seed(0)
    return StreamingAttention(
        DIM, HEADS, form=form, options=StreamingOptions(sinks=sinks, window=W),
        positions=RotaryPositions(DIM, HEADS) if positions else None,
    ).double()  # fmt: skip


def tokens(n: int = 13) -> Tensor:
    return torch.randn(2, n, DIM, dtype=torch.float64)


def rolling(made: StreamingAttention, x: Tensor) -> Tensor:
    """One token at a time: room is made, the token is added, all kept keys are numbered anew and
    turned by their numbers, and the query has the last number."""
    heads, turn = made.heads, made.heads.positions
    kept: list[tuple[Tensor, Tensor]] = []
    outs = []
    for i in range(x.shape[1]):
        q, k, v = (
            part(x[:, i : i + 1]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in (heads.query, heads.key, heads.value)
        )
        if len(kept) == S + W:
            del kept[S]  # the oldest that is no sink
        kept.append((k, v))
        keys, values = (torch.cat(each, dim=2) for each in zip(*kept, strict=True))
        numbers = torch.arange(len(kept))
        keys, q = turn.keys(keys, numbers), turn.queries(q, numbers[-1:])
        weights = (q @ keys.mT / math.sqrt(DIM // HEADS)).softmax(-1)
        outs.append(weights @ values)
    return heads.merge(torch.cat(outs, dim=2))


def test_the_first_and_the_last_tokens_are_seen() -> None:
    seen = OPTIONS.pattern().dense(9)
    for i in range(9):
        expected = {*range(S)} & {*range(i + 1)} | {*range(max(0, i - W + 1), i + 1)}
        assert {j for j in range(9) if seen[i, j]} == expected


@pytest.mark.parametrize("form", FORMS)
def test_it_is_a_rolling_cache_numbered_by_place(form: str) -> None:
    made, x = layer(form), tokens()
    expected = rolling(made, x)
    torch.testing.assert_close(made(x), expected)
    parts, state = [], None
    for piece in x.split([5, 1, 3, 1, 1, 2], dim=1):
        out, state = made.step(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected)


@pytest.mark.parametrize("form", FORMS)
def test_numbers_of_the_text_are_others_from_the_first_loss_on(form: str) -> None:
    made, x = layer(form), tokens()
    by_text = PatternAttention(
        DIM, HEADS, OPTIONS, form=form, positions=RotaryPositions(DIM, HEADS)
    ).double()
    by_text.load_state_dict(made.state_dict())
    same, other = made(x), by_text(x)
    torch.testing.assert_close(same[:, : S + W], other[:, : S + W])
    assert (same - other)[:, S + W :].abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_until_a_token_is_lost_it_is_causal_attention(form: str) -> None:
    made, x = layer(form), tokens(S + W)
    whole = full.FullAttention(DIM, HEADS, causal=True, positions=RotaryPositions(DIM, HEADS))
    whole.double().load_state_dict(made.state_dict())
    torch.testing.assert_close(made(x), whole(x))


@pytest.mark.parametrize("form", FORMS)
def test_without_sinks_it_is_a_sliding_window(form: str) -> None:
    """Where numbers of the text and of the cache give the same."""
    made, x = layer(form, sinks=0), tokens()
    window = full.FullAttention(DIM, HEADS, positions=RotaryPositions(DIM, HEADS)).double()
    window.load_state_dict(made.state_dict())
    q, k, v = window.heads.project(x)
    near = patterns.causal() & patterns.local(W - 1)
    torch.testing.assert_close(made(x), window.heads.merge(full.naive(q, k, v, mask=near)))


def test_a_text_of_any_length_is_kept_as_so_many_tokens() -> None:
    made, state = layer(), None
    for piece in tokens(40).split(7, dim=1):
        _, state = made.step(piece, state)
        assert state.past.length <= S + W
    # Those that the next query no longer sees are gone as well.
    assert state.places.tolist() == [*range(S), *range(40 - W + 1, 40)]


def test_padding_takes_no_number() -> None:
    """At the end, and among the first tokens, where it leaves fewer sinks."""
    made, x = layer(), tokens()
    after = torch.arange(13) < torch.tensor([[13], [9]])
    torch.testing.assert_close(made(x, after)[1, :9], made(x[1:, :9])[0])
    before = torch.arange(13)[None].expand(2, -1) > 0
    fewer = StreamingAttention(
        DIM, HEADS, options=StreamingOptions(sinks=S - 1, window=W),
        positions=RotaryPositions(DIM, HEADS),
    ).double()  # fmt: skip
    fewer.load_state_dict(made.state_dict())
    torch.testing.assert_close(made(x, before)[:, 1:], fewer(x[:, 1:]))


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="streaming is always causal"):
        attnlab.build("streaming", dim=DIM, heads=HEADS)
    for name, value in (("window", 0), ("sinks", -1)):
        with pytest.raises(ValueError, match=rf"{name} should be at least"):
            StreamingOptions(**{name: value})
    with pytest.raises(ValueError, match="a stream has no cross-attention"):
        layer().heads.project(tokens(), tokens())
