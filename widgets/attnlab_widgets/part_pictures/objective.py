"""An objective: one text as the model reads it, and under each token what it has to answer."""

from typing import Any

import torch
from torch import Tensor

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.figures.drawing import Drawing
from attnlab.figures.layout import text_width
from attnlab.figures.theme import SERIES, Theme
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch
from attnlab_widgets.part_pictures.sketch import SMALL, WIDE, Sketch, counted, sheet

TEXT = "the old cat saw the dog and the dog ran to the old cat ."
_TOP, _TALL, _LINE, _GAP = 28, 18, 44, 4
KINDS = ("shown", "hidden", "replaced")


def draw(card: Card, theme: Theme) -> Sketch:
    words = TEXT.split()
    vocabulary = sorted({*words})
    tokens = torch.tensor([[vocabulary.index(word) for word in words]])
    batch: Any = _prepared(card, tokens)
    inputs, targets = batch.inputs[0], batch.targets[0]
    shown = [_word(vocabulary, token) for token in inputs.tolist()]
    answers = [_word(vocabulary, t) if t != UNSCORED else "" for t in targets.tolist()]
    kinds = _kinds(inputs, tokens[0], len(vocabulary))
    drawing, lines = _strip(shown, answers, kinds, theme)
    scored = sum(answer != "" for answer in answers)
    count = {kind: kinds.count(kind) for kind in KINDS}
    drawing.text(
        f"▾ the answer wanted, at {scored} of {len(shown)} places",
        *(8, _TOP + lines * _LINE + 4),
        size=SMALL,
        quiet=True,
    )
    hidden = counted(count["hidden"], "is hidden", "are hidden").capitalize()
    replaced = f" and {count['replaced']} replaced" if count["replaced"] else ""
    return Sketch(
        drawing,
        f"A text of {len(shown)} tokens. {hidden}{replaced}; "
        f"{counted(scored, 'is', 'are')} scored. "
        f"Hidden from the model: {card.claims.hidden}.",
    )


def _prepared(card: Card, tokens: Tensor) -> Any:
    """The example as the objective hands it to a model."""
    objective: Any = build(card.name)
    padding = torch.ones(1, tokens.shape[1] - 1, dtype=torch.bool)
    given = Batch(tokens[:, :-1], tokens[:, 1:], padding)
    return objective.prepare(given, torch.Generator().manual_seed(1))


def _word(vocabulary: list[str], token: int) -> str:
    """A token that is no word of the text stands for what is hidden."""
    return vocabulary[token] if 0 <= token < len(vocabulary) else ""


def _kinds(inputs: Tensor, tokens: Tensor, words: int) -> list[str]:
    """Of each place, whether the token is the text's own, hidden, or another word."""
    found = []
    for at, token in enumerate(inputs.tolist()):
        if not 0 <= token < words:
            found.append("hidden")
        elif len(inputs) == len(tokens) - 1 and token != tokens[at]:
            found.append("replaced")
        else:
            found.append("shown")
    return found


def _strip(
    shown: list[str], answers: list[str], kinds: list[str], theme: Theme
) -> tuple[Drawing, int]:
    places, left, line = [], 8.0, 0
    for word, answer in zip(shown, answers, strict=True):
        wide = max(22, text_width(word, 11) + 8, text_width(answer, 11) + 4)
        if left + wide > WIDE - 8:
            left, line = 8.0, line + 1
        places.append((left, line, wide))
        left += wide + _GAP
    lines = line + 1
    drawing = sheet(_TOP + lines * _LINE + 16, theme, "What is read, and what is asked")
    for (x, line, wide), word, answer, kind in zip(places, shown, answers, kinds, strict=True):
        y = _TOP + line * _LINE
        middle = x + wide / 2
        fill = {"hidden": theme.quiet}.get(kind, theme.panel)
        edge = {"replaced": SERIES[1]}.get(kind, theme.grid)
        drawing.box(x, y, wide, _TALL, fill, edge, 2 if kind == "replaced" else 1)
        if word:
            drawing.text(word, middle, y + _TALL / 2, size=11, anchor="middle")
        if answer:
            drawing.patch(
                [(middle - 4, y + _TALL + 2), (middle + 4, y + _TALL + 2), (middle, y + _TALL + 6)],
                SERIES[0],
            )
            drawing.text(answer, middle, y + _TALL + 13, size=11, anchor="middle", bold=True)
    return drawing, lines
