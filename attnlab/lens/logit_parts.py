r"""Who writes the answer: a logit as the exact sum of what each part of a model adds to it.

The stream of a transformer is a sum, and a logit is linear in the stream behind the last norm:

$$\ell_t = w_t \cdot \mathrm{LN}(x) + b_t,\qquad
  x = e + p + \sum_{l,h} o_{l,h} + \sum_l f_l + \sum_l b_l$$

with $e$ the vector of the token, $p$ that of its position, $o_{l,h}$ what head $h$ of layer $l$
adds through its rows of the output matrix, $f_l$ a feed-forward layer, and $b_l$ the bias of an
output matrix. The norm alone is not linear: it divides by the deviation of x. With that one number
kept as it was in this run (**frozen**) the norm is linear too, so each part of x has a part of the
logit, and these sum to the logit exactly. The field calls it direct logit attribution.

What a part is not. A **direct** effect is what a part itself writes into the logit. A head that is
read by a later head, which then writes the answer, has no direct effect; patching
(``attnlab.lens.patching``) finds it. And a frozen scale does not see a part that only makes the
stream longer, which makes all other parts count less.

What raises all logits alike is a part of each of them, but changes no probability. So compare two
answers (``others=``), or an answer with the mean of all (``others="mean"``).

Joins. Where sublayers add to the stream as it is (pre-norm and the like), the last norm is the only
one that is frozen. In post-norm and DeepNorm the stream passes a norm after every sublayer: what a
part adds passes all later ones, and each of them is frozen. The sum is exact there too, but says
less, as every one of these scales depends on all parts. The feed-forward layers are no sums of
their inputs, so each is one part, as is a sublayer without heads, such as a convolution. Biases of
values belong to their head, whose weights sum to 1; biases of norms are parts of their own.

Elhage et al. A Mathematical Framework for Transformer Circuits. 2021,
transformer-circuits.pub/2021/framework. Wang, Variengien, Conmy, Shlegeris, Steinhardt.
Interpretability in the Wild. ICLR 2023, arXiv:2211.00593, section 3.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.architecture.join.deep_norm import DeepNorm
from attnlab.architecture.join.post_norm import PostNorm
from attnlab.core.modes import mode
from attnlab.core.norms import NoNorm, Normed
from attnlab.lens.stream import Step, Stream, followed
from attnlab.models.tiny import TinyTransformer

TOLERANCE = 1000.0
"""How far the sum of the parts may lie from the logit: in roundings of the sum of their sizes, and
in half precision at most ``COARSEST`` of it."""

COARSEST = 1 / 16


class Part(NamedTuple):
    """One summand of a logit.

    ``what`` is "embedding", "positions", "attention", "cross", "feed_forward", "bias" (of an output
    matrix of a layer) or "norm bias", or "output bias"; of a score also "distance"
    (``attnlab.lens.score_parts``). ``head`` is None where the sublayer is one part.
    """

    what: str
    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        if self.head is not None:
            return f"{'cross-' * (self.what == 'cross')}head {self.layer}.{self.head}"
        words = {"cross": "cross-attention", "bias": "bias of layer"}
        name = words.get(self.what, self.what).replace("_", "-")
        return name if self.layer is None else f"{name} {self.layer}"


class LogitParts(NamedTuple):
    """The parts of a logit, or of the difference of two.

    ``parts``   P of them, in the order of the model
    ``values``  (P, b, n) float64, at each position; (P, b) of a classifier, which answers once
    ``logits``  (b, n), or (b,): what the model itself gives, in its own precision; ``values``
                sum to it
    ``whole``   a sentence for each sublayer with attention that is one part, and why
    ``real``    (b, n) bool, True = a real token; (b,) of a classifier
    """

    parts: list[Part]
    values: Tensor
    logits: Tensor
    whole: list[str]
    real: Tensor

    def of(self, what: str, layer: int | None = None, head: int | None = None) -> Tensor:
        """(b, n) or (b,): the part of one name, such as ``of("attention", 1, 0)`` for a head."""
        part = Part(what, layer, head)
        if part not in self.parts:
            names = ", ".join(map(str, self.parts))
            raise ValueError(f"there is no part {what!r}, {layer}, {head}; there are {names}")
        return self.values[self.parts.index(part)]

    def means(self, where: Tensor | None = None) -> dict[Part, float]:
        """Each part in the mean over all real positions, or those ``where`` (b, n) is True."""
        chosen = self._chosen(where)
        found = chosen.mean(-1).tolist()
        return dict(zip(self.parts, found, strict=True))

    def heads(self, where: Tensor | None = None) -> dict[tuple[int, int], float]:
        """(layer, head) → the part of each head of self-attention, in the mean."""
        return {
            (part.layer, part.head): value
            for part, value in self.means(where).items()
            if part.what == "attention" and part.layer is not None and part.head is not None
        }

    def rows(self, where: Tensor | None = None) -> list[dict[str, Any]]:
        """One plain dict per part, the largest first: its name, and its mean."""
        found = sorted(self.means(where).items(), key=lambda each: -abs(each[1]))
        return [
            {"part": str(part), "layer": part.layer, "head": part.head, "mean": value}
            for part, value in found
        ]

    def __repr__(self) -> str:
        rows = self.rows()
        wide = max(len(row["part"]) for row in rows)
        lines = [f"{row['part']:{wide}} {row['mean']:+9.3f}" for row in rows]
        total = float(self.values[:, self.real].sum(0).mean())
        return "\n".join([*lines, f"{'sum':{wide}} {total:+9.3f}", *self.whole])

    def _chosen(self, where: Tensor | None) -> Tensor:
        if where is None:
            return self.values[:, self.real]
        if not isinstance(where, Tensor) or where.dtype != torch.bool:
            raise TypeError("where should be a bool tensor, True = counts, or None")
        shape = tuple(self.values.shape[1:])
        if where.shape != shape or not bool(
            (where := where.to(self.real.device) & self.real).any()
        ):
            raise ValueError(
                f"where should have the shape {shape} and be True at a real token, got "
                f"{tuple(where.shape)}"
            )
        return self.values[:, where]


def logit_parts(
    model: TinyTransformer,
    tokens: Tensor,
    answers: int | Tensor,
    *,
    others: int | Tensor | str | None = None,
    padding: Tensor | None = None,
    **more: Any,
) -> LogitParts:
    """The logit of ``answers`` at every position, as the sum of what each part adds.

    model:   a TinyTransformer of any kind; of an encoder-decoder the decoder is split.
    tokens:  (b, n), as the model is called.
    answers: a token or class, the same everywhere, or one for each logit: (b, n), of a classifier
             (b,). ``tokens.roll(-1, 1)`` asks after each token for the next one.
    others:  the answer that it is compared with, in the same way: the parts are then those of
             the difference of two logits. ``"mean"`` compares with the mean of all answers.
    padding: (b, n) bool, True = a real token. Parts at padding say nothing.
    more:    other arguments of the model, such as ``source=``.

    The model is left as it was, and no gradient is computed. All sums are in float64, of what the
    model computed in its own precision. Raises a ValueError where the layers do not stand one after
    another on one stream, or a join is no sum with frozen norms.
    """
    run = followed(model, tokens, padding, **more)
    weight, bias = output_matrix(run.model)
    shape = run.logits.shape[:-1]
    first = answers_of("answers", answers, shape, len(weight), run.logits.device)
    direction, constant = weight[first], bias[first]
    logits = run.logits.gather(-1, first[..., None])[..., 0]
    if isinstance(others, str):
        if others != "mean":
            raise ValueError(f'others should be answers, or "mean", got {others!r}')
        direction, constant = direction - weight.mean(0), constant - bias.mean()
        logits = logits - run.logits.mean(-1)
    elif others is not None:
        second = answers_of("others", others, shape, len(weight), run.logits.device)
        direction, constant = direction - weight[second], constant - bias[second]
        logits = logits - run.logits.gather(-1, second[..., None])[..., 0]
    pooled = run.model.kind == "classifier"
    if pooled:
        direction = _spread(direction, padding, run.end)
    found = parts_along(run, direction)
    if pooled:
        found = [(part, value.sum(1)) for part, value in found]
    if bool(bias.any()):
        found.append((Part("output bias"), constant))
    values = torch.stack([value for _, value in found])
    check_sum(values, logits, padding)
    whole = [step.whole for step in run.steps if step.whole is not None]
    real = run.real(padding)
    return LogitParts(
        [part for part, _ in found],
        values,
        logits,
        list(dict.fromkeys(whole)),
        real.any(1) if pooled else real,
    )


def answers_of(
    name: str, answers: Any, shape: torch.Size, count: int, device: torch.device
) -> Tensor:  # fmt: skip
    """One answer, of ``count``, for each logit, (b, n) or (b,); errors name the argument."""
    if isinstance(answers, bool) or not isinstance(answers, int | Tensor):
        raise TypeError(
            f"{name} should be a whole number or a tensor of them, got {type(answers).__name__}"
        )
    found = torch.as_tensor(answers, device=device)
    if found.is_floating_point() or found.dtype == torch.bool:
        raise TypeError(f"{name} should be whole numbers, got {found.dtype}")
    if found.dim() and found.shape != shape:
        raise ValueError(
            f"{name} should be one answer for each logit, {tuple(shape)}, got {tuple(found.shape)}"
        )
    if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < count:
        raise ValueError(f"{name} should be from 0 to {count - 1}, the answers of this model")
    return found.long().expand(shape)


def output_matrix(model: TinyTransformer) -> tuple[Tensor, Tensor]:
    """The matrix (answers, dim) and the bias (answers,) that make logits of a vector, float64."""
    parameter = next(model.parameters())
    eye = torch.eye(model.dim, dtype=parameter.dtype, device=parameter.device)
    with torch.no_grad():
        bias = model.logits(torch.zeros_like(eye[:1]))[0].double()
        return model.logits(eye).double().mT - bias[:, None], bias


def _spread(direction: Tensor, padding: Tensor | None, x: Tensor) -> Tensor:
    """The same direction at every real position, over their number: a classifier's mean."""
    real = torch.ones(x.shape[:2], device=x.device) if padding is None else padding.to(x.device)
    share = real.double() / real.double().sum(1, keepdim=True).clamp_min(1)
    return direction[:, None] * share[..., None]


# ---- from the logit back to what was added


def parts_along(run: Stream, direction: Tensor) -> list[tuple[Part, Tensor]]:
    """The parts of ``direction`` (b, n, dim) · (what the last norm gives), (b, n) each."""
    found: list[tuple[Part, Tensor]] = []
    direction, shift = through_norm(run.norm, run.end, direction)
    _add_shift(found, Part("norm bias"), shift)
    for step in reversed(run.steps):
        onto, direction, shift = _through_join(step, direction)
        _add_shift(found, Part("norm bias", step.layer), shift)
        found += reversed(_of_step(step, onto))
    own: list[tuple[Part, Tensor]] = []
    if run.tokens is None or torch.equal(run.tokens, run.start):
        own.append((Part("embedding"), _dot(run.start, direction)))
    else:
        own.append((Part("embedding"), _dot(run.tokens, direction)))
        rest = run.start.double() - run.tokens.double()
        own.append((Part("positions"), _dot(rest, direction)))
    return _united([*own, *reversed(found)])


def _united(found: Sequence[tuple[Part, Tensor]]) -> list[tuple[Part, Tensor]]:
    """Parts of one name are one, such as the biases of two norms of a layer."""
    sums: dict[Part, Tensor] = {}
    for part, value in found:
        sums[part] = sums[part] + value if part in sums else value
    return list(sums.items())


def _add_shift(found: list[tuple[Part, Tensor]], part: Part, shift: Tensor | None) -> None:
    if shift is not None and bool(shift.any()):
        found.append((part, shift))


def _of_step(step: Step, direction: Tensor) -> list[tuple[Part, Tensor]]:
    """What each head of a sublayer adds along ``direction``, or the sublayer as a whole."""
    assert step.added is not None
    if step.joined is None or step.heads is None:
        return [(Part(step.what, step.layer), _dot(step.added, direction))]
    output = step.heads.output
    linear = output.linear if isinstance(output, Normed) else output
    found = []
    if linear.bias is not None:
        found.append((Part("bias", step.layer), direction @ linear.bias.detach().double()))
    back = direction @ linear.weight.detach().double()
    if isinstance(output, Normed):  # the norm that SubLN puts in front of the last matrix
        back, shift = through_norm(output.norm, step.joined, back)
        _add_shift(found, Part("norm bias", step.layer), shift)
    each = (step.joined.double() * back).unflatten(-1, (step.heads.heads, -1)).sum(-1)
    heads = [(Part(step.what, step.layer, head), x) for head, x in enumerate(each.unbind(-1))]
    return [*heads, *found]


def _through_join(step: Step, direction: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Where ``direction`` after a join points to before it: for what the sublayer added and for the
    stream; and what the join's norm adds by its bias."""
    join = step.join
    assert step.added is not None
    if isinstance(join, PostNorm | DeepNorm):
        alpha = getattr(join, "alpha", 1.0)
        summed = alpha * step.before.double() + step.added.double()
        back, shift = through_norm(join.norm, summed, direction)
        return back, alpha * back, shift
    if not hasattr(join, "branch"):
        raise ValueError(
            f"join={type(join).__name__} does more than add a sublayer to the stream, so its parts "
            "are not known; take join='pre_norm'"
        )
    return _through_branch(step, direction), direction, None


def _through_branch(step: Step, direction: Tensor) -> Tensor:
    """The direction for what the sublayer added, in which a join that only adds is linear."""
    assert step.added is not None
    with mode(step.join, training=False), torch.enable_grad():
        given = step.added.detach().double().requires_grad_()
        added = step.join.branch(step.before.to(step.added), lambda _: given)
        (found,) = torch.autograd.grad(added.double(), given, direction)
    return found


def through_norm(norm: nn.Module, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where ``direction`` behind a norm that reads ``x`` points to in front of it, the scale
    frozen; and what its bias adds along ``direction``. A ValueError for a norm of another kind."""
    return through_scaled(norm, frozen_scale(norm, x), direction)


def frozen_scale(norm: nn.Module, x: Tensor) -> Tensor:
    """By what a norm multiplies the vectors that it reads, at each of ``x``, (…, dim): (…, 1),
    float64. A ValueError for a norm of another kind."""
    x = x.double()
    if isinstance(norm, nn.LayerNorm):
        return (x.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
    if isinstance(norm, nn.RMSNorm):
        epsilon = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        return (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    if isinstance(norm, nn.Identity | NoNorm):
        return torch.ones_like(x[..., :1])
    raise ValueError(
        f"the scale of a norm of type {type(norm).__name__} cannot be frozen here; those of "
        "norm='layer_norm', 'rms_norm' and 'no_norm' can"
    )


def through_scaled(
    norm: nn.Module, scale: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """As ``through_norm``, by a scale of ``frozen_scale``."""
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    shift = None if bias is None else direction @ bias.detach().double()
    back = direction if weight is None else direction * weight.detach().double()
    if isinstance(norm, nn.LayerNorm):
        back = back - back.mean(-1, keepdim=True)
    return back * scale, shift


def _dot(x: Tensor, direction: Tensor) -> Tensor:
    return (x.double() * direction).sum(-1)


def check_sum(
    values: Tensor, logits: Tensor, padding: Tensor | None, *, of: str = "logits"
) -> None:
    """A ValueError where the parts (P, b, n) do not sum to the logits (b, n), or to what else they
    are parts ``of``, because the model did more than was followed."""
    away = (values.sum(0) - logits.double()).abs()
    size = values.abs().sum(0).clamp_min(1e-30)
    if padding is not None and padding.shape == away.shape:
        away = away.masked_fill(~padding.to(away.device), 0)
    most = float((away / size).max()) if away.numel() else 0.0
    if not most <= min(TOLERANCE * torch.finfo(logits.dtype).eps, COARSEST):
        raise ValueError(
            f"the parts of this model do not sum to its {of} (they miss by {most:.1e} of their "
            "size): it does more than its sublayers and norms say, so its parts are not known"
        )
