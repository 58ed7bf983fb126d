"""Decoding with a budget of tokens: what it saves, and what it loses of what was asked.

Beside the cache of all tokens stand caches of 256 (``attnlab.compression.budget_cache``), at
several lengths of the text. One token is decoded after it, in one layer of 8 heads of 64; what
each cache holds and how many tokens the new one reads are counted.

What is lost is computed for one head, without training. All tokens are drawn alike, and nothing
distinguishes the eight that are asked for later: a question is a query that points at one of them,
and it is so long that this token has nine tenths of the weight among all. Lost is the distance of
the answer from that with all tokens, divided by the length of the latter: 0.8 to 1 where the token
is gone. A cache is cut before the questions come ("asked afterwards"), or after the prompt has
ended with them ("asked in the prompt"), for which SnapKV is made.

The new key and value are joined to the others by a copy, in every cache, which is timed alone, too;
and ``Quest`` finds the bounds of its pages anew for each token. A server would spare both.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.compression.budget_cache import (
    H2O,
    Policy,
    Quest,
    Random,
    Sinks,
    SnapKV,
    Window,
    budget_cache,
)
from attnlab.core.cache import KeyValueCache
from attnlab.core.probe import record
from attnlab.measure.comparison import ratio
from attnlab.measure.parts import Mine, always
from attnlab.measure.report import Row
from attnlab.measure.timing import compare, thread_count

HEADS, WIDTH = 8, 64
BUDGET, SHORT = 256, 32
LENGTHS = (1024, 2048, 4096, 8192, 16_384)
QUESTIONS, SHARE = 8, 0.9  # what the asked token has of the weight, as far as the others are drawn
WHEN = ("asked afterwards", "asked in the prompt")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    for batch in batches(quick=quick, threads=threads, kept={}):
        yield from batch


def batches(
    *, quick: bool, threads: int, kept: Mapping[str, Row], mine: Mine = always
) -> Iterator[list[Row]]:
    """The rows of each length that is ``mine``, which are measured together."""
    for m in (64,) if quick else LENGTHS:
        if not mine():
            continue
        known = [kept[name] for name in figures(m) if name in kept]
        whole = len(known) == len(figures(m))
        yield known if whole else list(measured(m, quick=quick, threads=threads))


def figures(m: int) -> list[str]:
    """The names of the rows after m tokens."""
    each = ((timed(name, m), *(told(name, m, when) for when in WHEN)) for name in policies(SHORT))
    return [copying(m), *chain(*each)]


def copying(m: int) -> str:
    return f"copy / full, one token after {m:,}"


def timed(name: str, m: int) -> str:
    return f"full / {name}, one token after {m:,}"


def told(name: str, m: int, when: str) -> str:
    return f"{name}: answer lost after {m:,}, {when}"


def policies(budget: int) -> dict[str, Policy]:
    """What stays, each with the same budget."""
    return {
        "window": Window(budget=budget),
        "sinks": Sinks(budget=budget),
        "H2O": H2O(budget=budget),
        "SnapKV": SnapKV(budget=budget, window=min(32, budget // 2)),
        "Quest": Quest(budget=budget, page=min(16, budget // 4)),
        "random": Random(budget=budget),
    }


def measured(m: int, *, quick: bool, threads: int) -> Iterator[Row]:
    """All rows after m tokens: for each policy the time beside the cache of all tokens, and what
    it loses."""
    given = policies(SHORT if quick else BUDGET)
    calls = decoded(m, given)
    repeats, warmup = (3, 1) if quick else (31, 3)
    past, row = calls["full"].state, torch.randn(1, HEADS, 1, WIDTH)
    copy = partial(KeyValueCache.extended, past, row, row)
    whole, *others, copied = compare(
        {**calls, "copy": copy}, repeats=repeats, warmup=warmup, threads=threads
    )
    yield ratio(copying(m), copied, whole, work="what joins the new key and value to the others")
    with thread_count(threads):
        losses = {when: lost(m, given, when, draws=1 if quick else 3) for when in WHEN}
    for time in others:
        tokens = f"{calls[time.name].read():,} of {calls['full'].read():,} tokens read"
        size, most = (calls[name].held() / 1e6 for name in (time.name, "full"))
        work = f"{tokens}; {size:.3g} of {most:.3g} MB held"
        yield ratio(timed(time.name, m), whole, time, work=work)
        for when, of in losses.items():
            loss = of[time.name]
            note = (
                f"{loss.read} of {loss.asked} asked tokens read; they have "
                f"{100 * loss.weight:.0f} % of the weight with all tokens"
            )
            yield Row(told(time.name, m, when), 100 * loss.lost, "%", note=note)


# ---- what one token costs


def layer(heads: int) -> nn.Module:
    return catalog.build("full", dim=heads * WIDTH, heads=heads, causal=True).eval()


@dataclass(frozen=True)
class Next:
    """One token after a text: a call that can be repeated."""

    attention: Any
    new: Tensor
    state: Any

    def __call__(self) -> Any:
        return _step(self.attention, self.new, self.state)

    def read(self) -> int:
        """How many tokens it reads, itself included."""
        with record() as notes:
            self()
        mask = notes.last("mask")
        if isinstance(mask, Tensor):  # Quest's, the same number in all heads
            return int(mask[0, 0].sum())
        return int(notes.last("keys").shape[2])

    def held(self) -> int:
        """Bytes of the state after it."""
        return sum(part.nbytes for part in self()[1] if isinstance(part, Tensor))


def decoded(m: int, given: Mapping[str, Policy]) -> dict[str, Next]:
    """One token after m, by name; "full" keeps all of them."""
    attention, new = layer(HEADS), torch.randn(1, 1, HEADS * WIDTH)
    small = {name: budget_cache(attention, policy) for name, policy in given.items()}
    return {
        name: Next(each, new, after(each, m)) for name, each in {"full": attention, **small}.items()
    }


def after(attention: Any, m: int) -> Any:
    """The state after m tokens.

    What a policy with votes has chosen matters neither to the time nor to the bytes, and it would
    need the weights of all pairs: so the prompt of a cache that is cut is its last b tokens.
    """
    policy = getattr(attention, "policy", Quest(budget=m, page=1))
    cut = not isinstance(policy, Quest)
    n = min(m, policy.budget) if cut else m
    x = torch.randn(1, n, HEADS * WIDTH)
    state = _step(attention, x, None)[1]
    return state._replace(at=state.at + m - n, length=m) if cut else state


def _step(attention: Any, x: Tensor, state: Any) -> Any:
    with torch.no_grad():
        return attention.step(x, state)


# ---- what is lost


class Lost(NamedTuple):
    """``lost`` on the mean over the ``asked`` tokens, ``read`` of which were there to be read;
    ``weight`` is their mean weight with all tokens."""

    lost: float
    read: int
    asked: int
    weight: float


class Text(NamedTuple):
    """Tokens (1, m, d), the places of those that are asked for, and the questions (1, asked, d)."""

    tokens: Tensor
    places: list[int]
    questions: Tensor


def lost(m: int, given: Mapping[str, Policy], when: str, *, draws: int) -> dict[str, Lost]:
    """What each policy loses of the answers, over texts of as many draws."""
    found: dict[str, list[Lost]] = {name: [] for name in given}
    for seed in range(draws):
        attention, turn = head(seed)
        text = asked(m, turn, seed, in_the_prompt=when == WHEN[1])
        whole = answers(attention, text)
        for name, policy in given.items():
            found[name].append(compared(answers(budget_cache(attention, policy), text), whole))
    return {name: _together(each) for name, each in found.items()}


def head(seed: int) -> tuple[nn.Module, Tensor]:
    """A head whose keys, values and outputs are the tokens themselves, and whose queries are the
    tokens turned by a rotation that is drawn, which is given as well."""
    drawn = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=drawn)).Q
    attention = layer(1)
    parts: Any = attention.heads
    with torch.no_grad():
        for part in (parts.query, parts.key, parts.value, parts.output):
            part.weight.copy_(turn if part is parts.query else torch.eye(WIDTH))
            if part.bias is not None:
                part.bias.zero_()
    return attention, turn


def asked(m: int, turn: Tensor, seed: int, *, in_the_prompt: bool) -> Text:
    """A text of m tokens that are drawn alike, eight of which, evenly spread, are asked for.

    A query of length β in the direction of a key of length √d has the score β there, and scores of
    the variance β² / d elsewhere, so that the key has the share s of all weight where
    β = log(s m / (1 − s)) + β² / 2d.
    """
    drawn = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randn(1, m, WIDTH, generator=drawn)
    places = [int((i + 0.5) * (m - QUESTIONS) / QUESTIONS) for i in range(QUESTIONS)]
    length = 0.0
    for _ in range(50):
        length = math.log(SHARE * m / (1 - SHARE)) + length**2 / (2 * WIDTH)
    keys = tokens[:, places]
    questions = length * WIDTH**0.5 * keys / keys.square().sum(-1, keepdim=True) @ turn
    if in_the_prompt:
        tokens[:, -QUESTIONS:] = questions
    return Text(tokens, places, questions)


class Answers(NamedTuple):
    """Outputs (asked, d) of the questions, and the weights of the tokens that they point at, 0
    where these are not read."""

    out: Tensor
    weights: Tensor


def answers(attention: Any, text: Text) -> Answers:
    """Each question is the token after the text."""
    _, state = _step(attention, text.tokens, None)
    outs, weights = [], []
    for i, place in enumerate(text.places):
        with record() as notes, torch.no_grad():
            outs.append(attention.step(text.questions[:, i : i + 1], state)[0][0, 0])
            weights.append(_weight(notes, attention, text.questions[0, i], state, place))
    return Answers(torch.stack(outs), torch.stack(weights))


def _weight(notes: Any, attention: Any, question: Tensor, state: Any, place: int) -> Tensor:
    """What the asked token has of the weight of the question."""
    heads = getattr(attention, "attention", attention).heads
    keys = notes.last("keys")[0, 0]
    scores = keys @ heads.query(question) * WIDTH**-0.5
    mask = notes.last("mask")
    if isinstance(mask, Tensor):
        scores = scores.masked_fill(~mask[0, 0, 0], -torch.inf)
    at = getattr(state, "at", None)
    there = torch.arange(len(keys) - 1) if at is None else at[0, 0]
    found: Tensor = scores.softmax(-1)[:-1][there == place].sum()
    return found


def compared(small: Answers, whole: Answers) -> Lost:
    distance = (small.out - whole.out).norm(dim=-1) / whole.out.norm(dim=-1)
    read = int((small.weights > 0).sum())
    return Lost(float(distance.mean()), read, len(distance), float(whole.weights.mean()))


def _together(each: list[Lost]) -> Lost:
    lost, weight = (sum(getattr(one, n) for one in each) / len(each) for n in ("lost", "weight"))
    return Lost(lost, sum(one.read for one in each), sum(one.asked for one in each), weight)
