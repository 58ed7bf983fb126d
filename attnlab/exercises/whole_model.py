"""Checks of lesson 06, stages 6 to 8: the loss, the training, and the weights of a shipped model.

As in ``attnlab.exercises.building``, another ``seed`` makes other numbers and sizes.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import stages
from attnlab.exercises.attempt import (
    Answer,
    Arguments,
    KnownMistake,
    Named,
    as_float64,
    difference,
    expect_tensor,
    number,
    random_tensors,
    require,
    run,
    same,
)
from attnlab.exercises.building import sizes
from attnlab.exercises.exercise import Exercise
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, says
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer

# ---- 6: the loss


def _chosen(scores: Tensor, ids: Tensor, shift: int = 1) -> Tensor:
    """−log p of the tokens `shift` places later, at each position that has one."""
    n = len(ids)
    places = torch.arange(n - shift) if shift >= 0 else torch.arange(-shift, n)
    return -scores.log_softmax(-1)[places, ids[places + shift]]


def _loss_cases(*, seed: int = 0) -> Iterator[Arguments]:
    n, vocab = sizes(seed, 7, 11)
    scores, order = random_tensors((n, vocab), (vocab,), seed=seed + 6)
    yield {"scores": scores, "ids": order.argsort()[:n]}


def _loss_then(function: Function, given: Arguments) -> str:
    large = {**given, "scores": given["scores"] + 1000}
    if not same(run(function, large).value, stages.next_token_loss(**large)):
        raise Mistake(
            "Right for small scores, but wrong near 1000: exp overflows. Use `log_softmax` or "
            "`F.cross_entropy`."
        )
    vocab = given["scores"].shape[1]
    return f"A model that knows nothing pays ln {vocab} = {number(math.log(vocab))} nats."


check_next_token_loss = Exercise(
    """Is it the loss? `next_token_loss(scores, ids) -> number`.

    `scores` is (n, vocab), the scores of the next token at each position; `ids` (n,) are the tokens
    that were read. Called with ordinary scores, and once with scores near 1000.
    """,
    right=stages.next_token_loss,
    cases=_loss_cases,
    axes="",
    mistakes={
        (lambda scores, ids: _chosen(scores, ids, 0).mean()): (
            "It scores the token that has just been read: the scores at position i are for the "
            "token at i + 1."
        ),
        (lambda scores, ids: _chosen(scores, ids, -1).mean()): (
            "It scores the token before: the scores at position i are for the token at i + 1."
        ),
        (lambda scores, ids: _chosen(scores, ids).sum()): "That is the sum; the mean is asked for.",
        (lambda scores, ids: _chosen(scores, ids).sum() / len(ids)): (
            "It divides by n. Only n − 1 tokens are predicted: nothing comes before the first."
        ),
        (lambda scores, ids: F.cross_entropy(scores, ids.roll(-1))): (
            "After the last token nothing follows: leave the last position out."
        ),
        (lambda scores, ids: _chosen(scores, ids).mean() / torch.tensor(2.0).log()): (
            "Those are bits: take the natural logarithm."
        ),
        (lambda scores, ids: -_chosen(scores, ids).mean()): (
            "The sign is wrong: the loss is the mean of −log p."
        ),
        (lambda scores, ids: F.cross_entropy(scores[:-1].softmax(-1), ids[1:])): (
            "The softmax is taken twice: `F.cross_entropy` takes scores, and does it itself."
        ),
        (lambda scores, ids: F.nll_loss(scores[:-1], ids[1:])): (
            "The softmax is missing: the mean of −score is not a loss."
        ),
        (lambda scores, ids: -(-_chosen(scores, ids)).exp().mean()): (
            "The logarithm is missing: take −log of the probability."
        ),
        (lambda scores, ids: -(-_chosen(scores, ids)).exp().mean().log()): (
            "It is the −log of the mean probability; take the mean of −log p."
        ),
    },
    praise="",
    then=_loss_then,
)


# ---- 7: training steps

Case = tuple[list[Tensor], Callable[[Any], Tensor], list[Tensor], float]


def _case(seed: int) -> Case:
    """Two parameters, a loss, five batches and a rate: new ones, since training changes them."""
    n, width = sizes(seed, 5, 3)
    w, b, *batches = random_tensors((width,), (1,), *[(n, width + 1)] * 5, seed=seed + 7)
    parameters = [w.requires_grad_(), b.requires_grad_()]

    def loss_of(batch: Tensor) -> Tensor:
        return (batch[:, :-1] @ w + b - batch[:, -1]).square().mean()

    return parameters, loss_of, batches, 0.1


def _trained(
    parameters: Sequence[Tensor], loss_of: Callable[[Any], Tensor], batches: Sequence[Tensor],
    rate: float, *, optimizer: Any = torch.optim.AdamW, clear: bool = True, anew: bool = False,
    step: bool = True, sign: int = 1, after: bool = False, same_batch: bool = False,
) -> list[float]:  # fmt: skip
    """Training; a known mistake replaces one of the steps or leaves one out."""
    made, losses = optimizer(parameters, lr=rate), []
    for batch in batches:
        batch = batches[0] if same_batch else batch
        made = optimizer(parameters, lr=rate) if anew else made
        loss = loss_of(batch)
        if clear:
            made.zero_grad()
        (sign * loss).backward()
        if step:
            made.step()
        losses.append((loss_of(batch) if after else loss).item())
    return losses


_TRAIN_MISTAKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("The gradients add up from step to step: call `zero_grad` in each.", {"clear": False}),
    (
        "The optimizer is made anew in each step, so that it forgets what it has averaged: make "
        "it once, before the loop.",
        {"anew": True},
    ),
    ("The parameters do not change: call `step`.", {"step": False}),
    ("The loss rises: the steps go up the gradient.", {"sign": -1}),
    ("The losses are measured after the step: keep the one that gave the gradients.",
     {"after": True}),
    ("Every step has the first batch.", {"same_batch": True}),
    ("That is plain gradient descent; AdamW is asked for.", {"optimizer": torch.optim.SGD}),
    ("That is Adam without weight decay; AdamW is asked for, as PyTorch makes it.",
     {"optimizer": torch.optim.Adam}),
)  # fmt: skip


def _outcome(function: Function, seed: int) -> tuple[Answer, Tensor]:
    """What training returned, and all parameters afterwards."""
    parameters, loss_of, batches, rate = _case(seed)
    answer = run(
        function,
        {"parameters": parameters, "loss_of": Named(loss_of, "a loss"),
         "batches": batches, "rate": rate},
    )  # fmt: skip
    shown = Answer(
        "train(parameters, loss_of, batches, rate)", answer.value, answer.raised, answer.hint
    )
    return shown, torch.cat([p.detach().flatten() for p in parameters])


@says(_TRAIN_MISTAKEN)
@returns_verdict
def check_training(function: Function, *, seed: int = 0) -> str:
    """Is it a training? `train(parameters, loss_of, batches, rate) -> losses`.

    One step of AdamW for each batch, with PyTorch's defaults beside the rate. The result has the
    loss of each batch before its step; the parameters are changed in place.
    """
    (answer, found), (right, wanted) = _outcome(function, seed), _outcome(stages.train, seed)
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    losses = _losses(answer)
    expected = torch.tensor(right.value, dtype=torch.float64)
    if same(found, wanted) and same(losses, expected):
        return f"The loss falls from {number(expected[0])} to {number(expected[-1])}."
    for sentence, changes in _TRAIN_MISTAKEN:
        mistaken, after = _outcome(lambda *given, c=changes: _trained(*given, **c), seed)
        if same(found, after) and same(losses, torch.tensor(mistaken.value)):
            raise Mistake(sentence)
    if len(losses) != len(expected):
        raise Mistake(f"There are {len(losses)} losses for {len(expected)} batches.")
    if same(found, wanted):
        raise Mistake(
            "The parameters are right. " + difference(losses, expected, "the list of losses")
        )
    raise Mistake(difference(found, wanted, "the training") + " (Those are the parameters.)")


def _losses(answer: Answer) -> Tensor:
    if answer.value is None:
        raise Mistake(f"{answer.call} gave None: return the list of losses.")
    values = [answer.value] if as_float64(answer.value) is not None else answer.value
    try:
        return torch.cat([as_float64(value).flatten() for value in values])  # type: ignore[union-attr, attr-defined]
    except (TypeError, AttributeError, RuntimeError):
        raise Mistake(f"{answer.call} should give a list of losses, one for each batch.") from None


# ---- 8: the whole model with the weights of another


def _random_model(seed: int) -> TinyTransformer:
    """Small, and with so many layers that the names do not sort by their numbers."""
    heads, d, vocab = sizes(seed, 3, 2, 13)
    made = TinyTransformer(vocab, dim=heads * d, layers=11, heads=heads, max_len=9, hidden=17)
    names = sorted(made.state_dict())
    values = random_tensors(*(made.state_dict()[name].shape for name in names), seed=seed + 8)
    made.load_state_dict(
        {name: 0.6 * x + ("norm.weight" in name) for name, x in zip(names, values, strict=True)}
    )
    return made.double().eval()


def _renamed(change: Callable[[dict[str, Tensor]], None]) -> Callable[..., Tensor]:
    """The right model, with other weights in the place of some."""

    def mistaken(ids: Tensor, weights: dict[str, Tensor], heads: int) -> Tensor:
        others = dict(weights)
        change(others)
        return stages.model(ids, others, heads)

    return mistaken


def _set(*endings: str, to: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def change(weights: dict[str, Tensor]) -> None:
        for name, x in weights.items():
            if name.endswith(endings):
                weights[name] = to(x)

    return _renamed(change)


def _reordered(order: Callable[[list[str]], list[str]]) -> Callable[..., Tensor]:
    def change(weights: dict[str, Tensor]) -> None:
        layers = [str(i) for i in range(sum(name.endswith("query.weight") for name in weights))]
        kept = dict(weights)
        for old, new in zip(layers, order(layers), strict=True):
            for name in kept:
                if name.startswith(f"decoder.blocks.{old}."):
                    weights[name] = kept[name.replace(f".{old}.", f".{new}.", 1)]

    return _renamed(change)


def _exchanged(first: str, second: str) -> Callable[..., Tensor]:
    def change(weights: dict[str, Tensor]) -> None:
        kept = dict(weights)
        for name in kept:
            if first in name:
                other = name.replace(first, second)
                weights[name], weights[other] = kept[other], kept[name]

    return _renamed(change)


_MODEL_MISTAKEN: tuple[KnownMistake, ...] = (
    ("The layers run in the order of their names as text, in which 10 comes before 2: sort them "
     "by number.", _reordered(sorted)),
    ("The layers run in reverse order.", _reordered(lambda layers: layers[::-1])),
    ("Every layer has the weights of layer 0.", _reordered(lambda layers: ["0"] * len(layers))),
    ("The positions are missing.", _set("positions.weight", to=torch.zeros_like)),
    ("Queries and keys are exchanged.", _exchanged("heads.query", "heads.key")),
    ("Keys and values are exchanged.", _exchanged("heads.key", "heads.value")),
    ("Values and output matrix are exchanged.", _exchanged("heads.value", "heads.output")),
    ("The norms of attention and network are exchanged.",
     _exchanged("attention_residual", "feed_forward_residual")),
    ("The biases of the network are missing.",
     _set("expand.bias", "contract.bias", to=torch.zeros_like)),
    ("There is one head; the number of heads is the third argument.",
     lambda ids, weights, heads: stages.model(ids, weights, 1)),
    ("Those are probabilities; scores are asked for.",
     lambda *given: stages.model(*given).softmax(-1)),
)  # fmt: skip


@says(_MODEL_MISTAKEN)
@returns_verdict
def check_whole_model(
    function: Function, shipped: Any = None, task: Any = None, *, seed: int = 0
) -> str:
    """Is it the library's model? `model(ids, weights, heads) -> (n, vocab)`.

    `weights` is what `state_dict()` gives. Called first with a small random model of 11 layers,
    then, if it is given, with the `shipped` one and its task: it writes 40 tokens beside the
    library.
    """
    small = _random_model(seed)
    (order,) = random_tensors((small.vocab or 0,), seed=seed + 9)
    given = {
        "ids": order.argsort()[:7],
        "weights": _Weights(small.state_dict()),
        "heads": small.config["heads"],
    }
    with torch.no_grad():
        require(
            function,
            given,
            lambda ids, *others: small(ids[None])[0],
            shape="n vocab",
            known_mistakes=_MODEL_MISTAKEN,
        )
        if shipped is None:
            return "The scores of a small random model of 11 layers."
        return _same_text(function, shipped, task, _PROMPTS[seed % len(_PROMPTS)])


class _Weights(dict[str, Tensor]):
    """Weights that a message names by their number."""

    def __str__(self) -> str:
        return f"a dict of {len(self)} tensors"


_PROMPTS = ("The function returns", "If the object is", "The name of the class")


def _same_text(function: Function, shipped: TinyTransformer, task: Any, prompt: str) -> str:
    ids = task.encode(prompt)
    theirs = generate(shipped, ids[None], 40, temperature=0)[0]
    weights, heads = _Weights(shipped.state_dict()), shipped.config["heads"]
    for place in range(len(ids), len(theirs)):
        answer = run(function, {"ids": theirs[:place], "weights": weights, "heads": heads})
        scores = expect_tensor(answer, shipped(theirs[None, :place])[0], "n vocab")
        if scores[-1].argmax() != theirs[place]:
            raise Mistake(
                f"Right for a small model of random numbers, but not for the shipped one: after "
                f"“{task.decode(theirs[:place])}” it writes another token. Is a size written down "
                "as a number?"
            )
    return f"Your model writes what the library's writes, token for token: “{task.decode(theirs)}”"
