"""Checks of lesson 06, stages 1 to 5: embedding, attention, network, block and stack.

Each gives the stage right inputs, whatever the earlier ones are like. With another ``seed`` the
numbers and the sizes differ: a teacher's hidden test is the same check with a seed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import stages
from attnlab.exercises.attempt import Arguments, Named, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function


def sizes(seed: int, *usual: int) -> tuple[int, ...]:
    """The usual sizes, or with another seed larger ones, which differ from each other as well."""
    return tuple(size + (1 + seed % 3 if seed else 0) for size in usual)


# ---- 1: embedding and positions


def _embedding_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, vocab, most, dim = sizes(seed, 5, 13, 11, 7)
    tokens, places, order = random_tensors((vocab, dim), (most, dim), (vocab,), seed=seed + 1)
    ids = order.argsort()[:n]
    ids[-1] = ids[0]  # a token that stands at two places
    yield {"ids": ids, "tokens": tokens, "places": places}


check_embedding = Exercise(
    """Has each token its vector and that of its place? `embed(ids, tokens, places) -> (n, dim)`.

    `ids` (n,) are whole numbers, `tokens` is (vocab, dim), `places` (most, dim) with most ≥ n.
    """,
    right=stages.embed,
    cases=_embedding_cases,
    axes="n dim",
    mistakes={
        (lambda ids, tokens, places: tokens[ids]): (
            "The positions are missing: add the row of `places` for each position, 0, 1, 2, …"
        ),
        (lambda ids, tokens, places: places[: len(ids)]): (
            "The tokens are missing: that is the table of positions alone."
        ),
        (lambda ids, tokens, places: tokens[ids] + places[ids % len(places)]): (
            "`places` is read at the ids of the tokens. Its row number is the position in the text."
        ),
        (lambda ids, tokens, places: tokens[ids] + places[1 : len(ids) + 1]): (
            "Positions are counted from 0: the first token gets `places[0]`."
        ),
        (lambda ids, tokens, places: tokens[ids] + places[-len(ids) :]): (
            "The last rows of `places` are used: the first token gets `places[0]`."
        ),
        (lambda ids, tokens, places: tokens[ids] + places[0]): (
            "Every position gets the same row of `places`: position i gets row i."
        ),
        (lambda ids, tokens, places: tokens[ids] * places[: len(ids)]): (
            "The two vectors are multiplied: add them."
        ),
        (lambda ids, tokens, places: tokens[ids] * tokens.shape[1] ** 0.5 + places[: len(ids)]): (
            "The tokens are multiplied by √dim, as in the paper of 2017. This model does not do it."
        ),
        (lambda ids, tokens, places: torch.cat([tokens[ids], places[: len(ids)]], -1)): (
            "The two vectors stand side by side: add them, so that the width stays dim."
        ),
    },
    praise="A token that occurs twice has two vectors, since it stands at two places.",
)


# ---- 2: attention with heads


def _attend(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, heads: int, *,
    turn: Callable[[Tensor], Tensor] = lambda w: w.mT, past: Callable[..., Tensor] = torch.tril,
    split: Callable[[Tensor, int], Tensor] = lambda y, h: y.unflatten(-1, (h, -1)).transpose(0, 1),
    join: Callable[[Tensor], Tensor] = lambda out: out.transpose(0, 1).flatten(1),
    scale: Callable[[int, int], float] = lambda d, dim: d**-0.5,
    axis: int = -1, last: bool = True, late: bool = False,
) -> Tensor:  # fmt: skip
    """The attention; a known mistake replaces one of the steps or leaves one out."""
    q, k, v = (split(x @ turn(w), heads) for w in (wq, wk, wv))
    scores = q @ k.mT * scale(q.shape[-1], x.shape[-1])
    allowed = past(torch.ones(len(x), len(x))).bool()
    if late:
        weights = scores.softmax(axis) * allowed
    else:
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(axis)
    out = join(weights @ v)
    return out @ turn(wo) if last else out


def _heads_attend_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, heads, d = sizes(seed, 7, 3, 5)
    dim = heads * d
    x, *four = random_tensors((n, dim), *[(dim, dim)] * 4, seed=seed + 2)
    for count in (1, heads):
        names = ("x", "Wq", "Wk", "Wv", "Wo")
        matrices = (x, *(w / 3 for w in four))
        given: Arguments = {**dict(zip(names, matrices, strict=True)), "heads": count}
        yield given


def _heads_attend_then(function: Function, given: Arguments) -> str:
    heads, dim = given["heads"], len(given["Wq"])
    return (
        f"{heads} heads of width {dim // heads}, each with its own softmax over the tokens so far."
    )


check_heads_attend = Exercise(
    """Is it causal attention with heads? `attend(x, Wq, Wk, Wv, Wo, heads) -> (n, dim)`.

    `x` is (n, dim); the matrices are (dim, dim) in the layout of `nn.Linear`, (out, in).
    """,
    right=_attend,
    cases=_heads_attend_cases,
    axes="n dim",
    mistakes={
        but(turn=lambda w: w): "The matrices have the layout of `nn.Linear`, (out, in): multiply "
        "by the transposed matrix, `x @ Wq.T`.",
        but(past=lambda ones: ones): "The causal mask is missing: a token attends to the tokens "
        "after it, which do not exist while the model writes.",
        but(past=torch.triu): (
            "The causal mask is the wrong way round: position i attends to j ≤ i."
        ),
        but(past=lambda ones: ones.tril(-1)): (
            "A token may not attend to itself: the mask allows j ≤ i, not j < i."
        ),
        but(late=True): "The weights are masked after the softmax: the rows no longer sum to one. "
        "Set the scores to −∞ before it.",
        but(scale=lambda d, dim: 1.0): "The scores are not scaled: multiply them by 1/√d.",
        but(scale=lambda d, dim: dim**-0.5): (
            "The scores are scaled by the width of the model; d is the width of one head."
        ),
        but(scale=lambda d, dim: 1 / d): "The scores are divided by d; divide them by √d.",
        (lambda x, wq, wk, wv, wo, heads: _attend(x, wq, wk, wv, wo, 1)): (
            "There is one head: divide the width among the heads before the scores are computed."
        ),
        but(split=lambda y, h: y.reshape(h, len(y), -1)): (
            "The heads are split by a reshape without a transpose, so that one head gets whole "
            "positions: first (n, heads, d), then exchange n and heads."
        ),
        but(split=lambda y, h: y.unflatten(-1, (-1, h)).permute(2, 0, 1)): (
            "The heads are interleaved: head a takes d features that stand next to each other."
        ),
        but(join=lambda out: out.reshape(out.shape[1], -1)): (
            "The heads are joined without a transpose: from (heads, n, d) first to (n, heads, d)."
        ),
        but(last=False): "The last matrix is missing: what the heads give is multiplied by Wo.",
        (lambda *given: _attend(*given, axis=-2).nan_to_num()): (
            "The softmax runs over the queries; the weights of a query sum to one, `dim=-1`."
        ),
        (lambda *given: given[0] + _attend(*given)): (
            "x is added here; the residual connection belongs to the block, in stage 4."
        ),
    },
    praise="",
    then=_heads_attend_then,
)


# ---- 3: the feed-forward network


def _network(bend: Callable[[Tensor], Tensor], b1: int = 1, b2: int = 1) -> Callable[..., Tensor]:
    return lambda x, w1, c1, w2, c2: bend(x @ w1.mT + b1 * c1) @ w2.mT + b2 * c2


def _network_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, dim, hidden = sizes(seed, 5, 7, 11)
    shapes = {
        "x": (n, dim),
        "W1": (hidden, dim),
        "b1": (hidden,),
        "W2": (dim, hidden),
        "b2": (dim,),
    }
    yield dict(zip(shapes, random_tensors(*shapes.values(), seed=seed + 3), strict=True))


check_network = Exercise(
    """Is it the network of a block? `feed_forward(x, W1, b1, W2, b2) -> (n, dim)`.

    `W1` is (hidden, dim), `W2` (dim, hidden), in the layout of `nn.Linear`.
    """,
    right=stages.feed_forward,
    cases=_network_cases,
    axes="n dim",
    mistakes={
        _network(lambda y: y): "The GELU is missing: two matrices in a row are one matrix.",
        _network(torch.relu): "That is a ReLU; this model has a GELU, `F.gelu`.",
        _network(lambda y: F.gelu(y, approximate="tanh")): (
            "That is the approximation of GELU by tanh, as in GPT-2; this model has the exact one."
        ),
        _network(F.silu): "That is a SiLU, y · sigmoid(y); this model has a GELU, `F.gelu`.",
        _network(F.gelu, 0, 0): "Both biases are missing.",
        _network(F.gelu, 0): "The first bias, b1, is missing.",
        _network(F.gelu, 1, 0): "The second bias, b2, is missing.",
        (lambda *given: F.gelu(stages.feed_forward(*given))): (
            "There is a GELU at the end, too; only the hidden layer has one."
        ),
        (lambda x, *others: x + stages.feed_forward(x, *others)): (
            "x is added here; the residual connection belongs to the block, in stage 4."
        ),
    },
    praise="Each position is treated by itself, with the same weights.",
)


# ---- 4: norm and residual connections


def _block(
    x: Tensor, attention: Function, network: Function, gain: Tensor, bias: Tensor, *,
    keep: tuple[int, int] = (1, 1), norms: tuple[int, int] | None = (0, 1), post: bool = False,
    side_by_side: bool = False, of: Callable[..., Tensor] = stages.norm, swapped: bool = False,
) -> Any:  # fmt: skip
    """The block; a known mistake replaces one of the steps or leaves one out."""

    def normal(y: Tensor, part: int) -> Tensor:
        if norms is None or norms[part] < 0:
            return y
        return of(y, gain[norms[part]], bias[norms[part]])

    parts: tuple[Any, Any] = (network, attention) if swapped else (attention, network)
    if post:
        x = normal(x + parts[0](x), 0)
        return normal(x + parts[1](x), 1)
    y = keep[0] * x + parts[0](normal(x, 0))
    return keep[1] * y + parts[1](normal(x if side_by_side else y, 1))


def _by_sample(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return gain * (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() + bias


def _over_positions(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return gain * (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() + bias


def _block_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, dim = sizes(seed, 5, 7)
    x, a, b, gain, bias = random_tensors(
        (n, dim), *[(dim, dim)] * 2, *[(2, dim)] * 2, seed=seed + 4
    )
    yield {
        "x": 2 * x + 1,
        "attention": Named(lambda y: (y.cumsum(0) @ a.to(y)).tanh(), "an attention"),
        "network": Named(lambda y: (y @ b.to(y)).relu(), "a network"),
        "gain": gain + 1,
        "bias": bias,
    }


check_block = Exercise(
    """Is it a block? `block(x, attention, network, gain, bias) -> (n, dim)`.

    `attention` and `network` are functions from (n, dim) to (n, dim); `gain` and `bias` are
    (2, dim), a row for the norm before each.
    """,
    right=_block,
    cases=_block_cases,
    axes="n dim",
    mistakes={
        but(keep=(0, 0)): "The residual connections are missing: add each part to x.",
        but(keep=(0, 1)): "The residual connection of the attention is missing.",
        but(keep=(1, 0)): "The residual connection of the network is missing.",
        but(post=True): "The sums are normalised, as in the paper of 2017 (post-norm). Here a part "
        "reads norm(x), and the sum stays as it is (pre-norm).",
        but(norms=None): "The normalisation is missing: each part reads norm(x).",
        but(norms=(-1, 1)): "The attention reads x without normalisation.",
        but(norms=(0, -1)): "The network reads x without normalisation.",
        but(norms=(0, 0)): "Both norms use the first gain and bias: the second norm has row 1.",
        but(norms=(1, 1)): "Both norms use the second gain and bias: the first norm has row 0.",
        but(norms=(1, 0)): "The two norms are exchanged: that of the attention has row 0.",
        but(side_by_side=True): "The network reads the x from before the attention. It reads what "
        "the attention has been added to.",
        but(swapped=True, norms=(0, 1)): "The attention comes first, then the network.",
        but(swapped=True, norms=(1, 0)): "The attention comes first, then the network.",
        but(of=_by_sample): (
            "The variance divides by dim − 1, as `var` and `std` do: divide by dim "
            "(`correction=0`)."
        ),
        but(of=_over_positions): "Mean and variance run over the positions: each position has its "
        "own, over its dim numbers.",
        but(of=lambda x, gain, bias: F.layer_norm(x, x.shape[-1:])): (
            "The gains and biases are not used."
        ),
    },
    praise="Each part reads norm(x), and x itself goes on unchanged beside it.",
)


# ---- 5: the stack and the scores


def _scores(of: Callable[[Tensor, list[Any]], Tensor], last: bool = True) -> Callable[..., Tensor]:
    return lambda x, blocks, gain, bias, tokens: (
        (stages.norm(of(x, blocks), gain, bias) if last else of(x, blocks)) @ tokens.mT
    )


def _through(x: Tensor, blocks: list[Any]) -> Tensor:
    for each in blocks:
        x = each(x)
    return x


def _mixing(matrix: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda y: y + (y.cumsum(0) @ matrix.to(y)).tanh()


def _stack_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, dim, vocab, count = sizes(seed, 5, 7, 13, 3)
    shapes = ((n, dim), (dim,), (dim,), (vocab, dim), (count, dim, dim))
    x, gain, bias, tokens, matrices = random_tensors(*shapes, seed=seed + 5)
    blocks = [Named(_mixing(matrix), f"block {number}") for number, matrix in enumerate(matrices)]
    yield {"x": x, "blocks": blocks, "gain": gain + 1, "bias": bias, "tokens": tokens}


check_stack = Exercise(
    """Are they the scores of the next token? `stack(x, blocks, gain, bias, tokens) -> (n, vocab)`.

    `blocks` is a list of functions from (n, dim) to (n, dim); `gain` and `bias` (dim,) belong to
    the last norm, `tokens` (vocab, dim) is the table of stage 1.
    """,
    right=stages.stack,
    cases=_stack_cases,
    axes="n vocab",
    mistakes={
        _scores(_through, last=False): (
            "The last norm is missing: what the blocks have added up is normalised once more."
        ),
        _scores(lambda x, blocks: blocks[-1](x)): (
            "Every block reads the first x, and only the last one counts: each reads what the "
            "block before it gave."
        ),
        _scores(lambda x, blocks: blocks[0](x)): "Only the first block is used.",
        _scores(lambda x, blocks: _through(x, blocks[::-1])): "The blocks run in reverse order.",
        _scores(lambda x, blocks: sum((each(x) for each in blocks), torch.zeros_like(x))): (
            "The results of the blocks are added up; each block reads what the block before it "
            "gave."
        ),
        _scores(lambda x, blocks: _through(x, [lambda y, f=f: y + f(y) for f in blocks])): (
            "x is added to each block once more: the block has its residual connections inside."
        ),
        (
            lambda x, blocks, gain, bias, tokens: (
                _through(stages.norm(x, gain, bias), blocks) @ tokens.mT
            )
        ): ("The norm stands before the blocks; it comes after the last one."),
        (lambda *given: stages.stack(*given).softmax(-1)): (
            "Those are probabilities. Scores are asked for: the softmax is part of the loss."
        ),
        (lambda *given: stages.stack(*given)[-1]): (
            "That is the last position alone: give the scores at every position."
        ),
        (lambda x, blocks, gain, bias, tokens: stages.norm(_through(x, blocks), gain, bias)): (
            "Those are vectors of width dim: compare them with the vectors of all tokens, `@ "
            "tokens.T`."
        ),
    },
    praise="The table that made vectors of tokens now scores the tokens: it serves twice.",
)
