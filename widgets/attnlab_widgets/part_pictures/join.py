"""A join: variance of the stream and gradient of each sublayer, by depth, before training."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.options import parameters_of
from attnlab.core.typeset import in_plain_text
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, Theme
from attnlab_widgets.part_pictures.sketch import SMALL, Sketch, sheet

SUBLAYERS, DIM = 64, 64
_HIGH, _TOP, _TALL, _LEFT, _WIDE, _GAP = 138, 40, 78, 34, 142, 50


class Profile(NamedTuple):
    """Variance of the stream after each sublayer, and the norm of the gradient of each one's
    weights beside that of the last."""

    variance: np.ndarray
    gradient: np.ndarray


def draw(card: Card, theme: Theme) -> Sketch:
    found = profile(card.name)
    drawing = sheet(_HIGH, theme, f"{SUBLAYERS} sublayers, before training")
    claims = [in_plain_text(x) for x in (card.claims.variance, card.claims.gradient)]
    _panel(drawing, 0, "variance of the stream", found.variance, SERIES[0])
    _panel(drawing, 1, "gradient beside the last", found.gradient, SERIES[1])
    variance, gradient = float(found.variance[-1]), float(found.gradient[0])
    words = (
        f"After {SUBLAYERS} sublayers the variance of the stream is {variance:.3g} "
        f"(claimed: {claims[0]}), and the gradient of the first is {gradient:.3g} times that of "
        f"the last (claimed: {claims[1]})."
    )
    return Sketch(drawing, words)


def profile(name: str) -> Profile:
    """Measured on sublayers that keep the variance of what they read: orthogonal matrices."""
    takes = parameters_of(catalog.card(name).build)
    given = {
        key: value for key, value in {"dim": DIM, "layers": SUBLAYERS // 2}.items() if key in takes
    }
    x, variance, matrices = torch.randn(1, 64, DIM), [], []
    for _ in range(SUBLAYERS):
        join = catalog.build(name, **given).eval()
        matrix = torch.nn.init.orthogonal_(torch.empty(DIM, DIM)).requires_grad_()
        matrices.append(matrix)

        def turned(read: Tensor, by: Tensor = matrix) -> Tensor:
            return read @ by

        x = join(x, turned)
        variance.append(float(x.detach().var(-1, correction=0).mean()))
    (x * torch.randn_like(x)).sum().backward()
    norms = np.array([float(matrix.grad.norm()) for matrix in matrices])  # type: ignore[union-attr]
    return Profile(np.array(variance), norms / max(norms[-1], 1e-30))


def _panel(drawing: Drawing, at: int, name: str, values: np.ndarray, colour: str) -> None:
    theme, left = drawing.theme, _LEFT + at * (_WIDE + _GAP)
    finite = np.clip(np.nan_to_num(values, posinf=1e30), 1e-30, 1e30)
    low = min(-1, math.floor(math.log10(finite.min())))
    high = max(2, math.ceil(math.log10(finite.max())))
    drawing.text(name, left, _TOP - 12, size=SMALL, quiet=True)

    def y(power: float) -> float:
        return _TOP + _TALL * (high - power) / (high - low)

    step = math.ceil((high - low) / 4)
    for power in range(low, high + 1, step):
        drawing.line([(left, y(power)), (left + _WIDE, y(power))], theme.grid)
        drawing.text(_power(power), left - 4, y(power), size=9, quiet=True, anchor="end")
    across = left + _WIDE * np.arange(len(finite)) / (len(finite) - 1)
    points = list(zip(across.tolist(), map(y, np.log10(finite)), strict=True))
    drawing.line([(round(a, 1), round(b, 1)) for a, b in points], colour, 2)
    for place, anchor in ((0, "start"), (len(finite) - 1, "end")):
        drawing.text(
            str(place + 1), across[place], _TOP + _TALL + 10, size=9, quiet=True, anchor=anchor
        )
    drawing.text(
        "sublayer", left + _WIDE / 2, _TOP + _TALL + 10, size=9, quiet=True, anchor="middle"
    )
    for place in (0, -1):
        drawing.disc(*points[place], 2.5, colour)


def _power(power: int) -> str:
    if -3 <= power <= 3:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
