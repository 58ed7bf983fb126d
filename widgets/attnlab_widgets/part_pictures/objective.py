"""An objective: one text as the model reads it, and below each token what it has to answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.core.options import parameters_of
from attnlab.core.probe import record
from attnlab.figures.drawing import Drawing
from attnlab.figures.layout import text_width
from attnlab.figures.theme import SERIES, Theme
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch
from attnlab.tasks import Batch
from attnlab_widgets.part_pictures.sketch import SMALL, WIDE, Sketch, counted, sheet

TEXT = "the old cat saw the dog and the dog ran to the old cat ."
SOURCE, TARGET = "the old cat saw the dog .", "le vieux chat vit le chien ."
TREE = "(S (NP the old cat) (VP saw (NP the dog) (PP on (NP my red mat))) .)"
WRITTEN = "un vieux chat voit un chien ."
"""A source with its target, and what a teacher writes in the place of the target."""
_TOP, _TALL, _LINE, _GAP = 28, 18, 44, 4
HIDDEN, REPLACED, SIGN, SHOWN = "hidden", "replaced", "sign", "shown"


@dataclass(frozen=True)
class Place:
    """A token as the model reads it, and what it has to answer there; "" for nothing."""

    word: str
    answer: str
    kind: str


@dataclass(frozen=True)
class Strip:
    """Tokens of one line of the picture, with its name if there are several lines."""

    label: str
    places: list[Place]


@dataclass(frozen=True)
class Example:
    """What an encoder reads, if there is one, what stands where answers are asked, how many tokens
    of the text are hidden, and what is answered for the whole text, if anything is. ``parts`` are
    the texts or pieces that are compared, if there are several."""

    source: list[Place]
    asked: list[Place]
    hidden: int
    whole: str
    parts: list[Strip]

    def strips(self) -> list[Strip]:
        """The lines of the picture."""
        if self.parts:
            return self.parts
        return [Strip("", places) for places in (self.source, self.asked) if places]


def draw(card: Card, theme: Theme) -> Sketch:
    found = look(card)
    strips = found.strips()
    drawing = sheet(_TOP + sum(map(_high, strips)) + 18, theme, "What is read, and what is asked")
    y = _TOP
    for strip in strips:
        _draw_strip(drawing, strip, y)
        y += _high(strip)
    scored = sum(bool(place.answer) for place in found.asked)
    said = f"▾ the answer wanted, at {scored} of {len(found.asked)} places"
    if found.whole:
        said = f"▾ asked of all of it: {found.whole}"
    signs = any(place.kind == SIGN for strip in strips for place in strip.places)
    more = " · ⟨1⟩ is added to the text" if signs else ""
    said += more if text_width(said + more, SMALL) < WIDE - 16 else ""
    drawing.text(said, 8, y + 6, size=SMALL, quiet=True)
    return Sketch(drawing, _words(card, found, scored))


def look(card: Card) -> Example:
    """The example as the objective hands it to a model."""
    claims: Any = card.claims
    vocabulary, given = _pair() if claims.source else _text(claims.texts)
    if card.structure is not None:
        vocabulary, given = _tree()
    objective: Any = build(card.name, **_given(card, vocabulary))
    with record() as notes:
        asked = objective.prepare(given, torch.Generator().manual_seed(1))
    told = (getattr(objective, "verdicts", ()), getattr(objective, "asks", ""))
    text = Text(vocabulary, given.inputs[0].tolist(), *told)
    source = [] if asked.source is None else text.places(asked.source, asked.source_padding)
    by_token = asked.targets.shape == asked.inputs.shape[:2]
    targets = asked.targets[0] if by_token else None
    places = text.places(asked.inputs, asked.padding, targets, in_place=not source)
    hidden = sum(place.kind == HIDDEN for place in source or places)
    if "hidden" in notes:
        hidden = int(notes.last("hidden").sum())
    parts = [] if by_token else _parts(claims.texts, places, notes)
    whole = "" if by_token else TARGET.removesuffix(" .") if claims.source else _whole(asked, parts)
    return Example(source, places, hidden, whole, parts)


def _parts(texts: int, places: list[Place], notes: Any) -> list[Strip]:
    """The texts of a row that holds several, or the pieces of it that are noted."""
    if "start" in notes and "length" in notes:
        ends = zip(notes.last("start")[0].tolist(), notes.last("length")[0].tolist(), strict=True)
        return [Strip(f"piece {i}", places[a : a + n]) for i, (a, n) in enumerate(ends, 1)]
    if texts == 1:
        return []
    wide = len(places) // texts
    return [Strip(f"text {i + 1}", places[i * wide :][:wide]) for i in range(texts)]


def _whole(asked: Any, parts: list[Strip]) -> str:
    """A class, where one text has one; else how many answers there are."""
    if asked.targets.dim() == 1:
        return "which texts belong together" if parts else f"class {int(asked.targets[0])}"
    return counted(asked.targets.shape[1], "answer", "answers")


def _text(texts: int) -> tuple[list[str], Batch]:
    """The words of a text, and the text, of as many words as its texts divide."""
    words = TEXT.split()
    words = words[: len(words) - (len(words) - 1) % texts]
    vocabulary = sorted({*words})
    tokens = torch.tensor([[vocabulary.index(word) for word in words]])
    real = torch.ones(1, len(words) - 1, dtype=torch.bool)
    return vocabulary, Batch(tokens[:, :-1], tokens[:, 1:], real)


def _tree() -> tuple[list[str], Batch]:
    """The labels of a sentence's tree, and its leaves and then its nodes."""
    tree = Tree.read(TREE)
    labels = [each.label for each in (*tree.leaves(), *tree.nodes())]
    vocabulary = sorted({*labels})
    tokens = torch.tensor([[vocabulary.index(label) for label in labels]])
    real = torch.ones_like(tokens, dtype=torch.bool)
    return vocabulary, Batch(tokens, tokens, real, structure=TreeBatch.of([tree]))


def _pair() -> tuple[list[str], Batch]:
    """The words of a source, its target and another, and the first two."""
    vocabulary = ["start", *sorted({*f"{SOURCE} {TARGET} {WRITTEN}".split()})]
    source, target = (
        torch.tensor([[vocabulary.index(word) for word in text.split()]])
        for text in (SOURCE, TARGET)
    )
    before = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
    return vocabulary, Batch(before, target, torch.ones_like(target, dtype=torch.bool), source)


def _given(card: Card, vocabulary: list[str]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if "vocab" in parameters_of(card.build):
        own["vocab"] = len(vocabulary)
    if "teacher" in parameters_of(card.build):
        claims: Any = card.claims
        said = WRITTEN if claims.source else TEXT
        if getattr(card.build, "maps", False):
            sizes: dict[str, Any] = {"dim": 4, "heads": 1, "layers": 1, "classes": 2}
            own["teacher"] = TinyTransformer(len(vocabulary), kind=claims.models[0], **sizes)
            return own
        own["teacher"] = Teacher([vocabulary.index(word) for word in said.split()], len(vocabulary))
    return own


class Teacher(nn.Module):
    """Writes one text, whatever the source is."""

    def __init__(self, words: list[int], vocab: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(nn.functional.one_hot(torch.tensor(words), vocab).float())

    def forward(self, tokens: Tensor, **source: Any) -> Tensor:
        return self.logits[: tokens.shape[1]].expand(len(tokens), -1, -1)


class Text:
    """The words of a text, and the signs that an objective adds to them, in their order."""

    def __init__(
        self, words: list[str], own: list[int], verdicts: Sequence[str] = (), asks: str = ""
    ) -> None:
        self.words, self.own, self.verdicts, self.asks = words, own, verdicts, asks
        self.signs: list[int] = []

    def places(
        self,
        inputs: Tensor,
        padding: Tensor | None,
        targets: Tensor | None = None,
        *,
        in_place: bool = False,
    ) -> list[Place]:
        """The real tokens of the first row; ``in_place`` if they may stand where the text's do."""
        row = inputs[0].tolist()
        real = [True] * len(row) if padding is None else padding[0].tolist()
        asked = [UNSCORED] * len(row) if targets is None else targets.tolist()
        same = sum(a == b for a, b in zip(row, self.own, strict=False))
        told = in_place and len(row) == len(self.own) and same > len(row) / 2
        return [
            Place(
                "" if kind == HIDDEN else self._name(token),
                "" if target == UNSCORED else self._answer(target),
                kind,
            )
            for at, (token, target) in enumerate(zip(row, asked, strict=True))
            if real[at]
            for kind in [self._kind(token, self.own[at] if told else None)]
        ]

    def _kind(self, token: int, own: int | None) -> str:
        """A token beyond the vocabulary hides the text's own at its place, if there is one; another
        word replaces it."""
        if token >= len(self.words):
            return SIGN if own is None else HIDDEN
        return SHOWN if own in (None, token) else REPLACED

    def _answer(self, target: int) -> str:
        """A word, or what is to be said of the token, such as "replaced"."""
        if self.asks:
            return self.asks
        beyond = target - len(self.words)
        return self.verdicts[beyond] if 0 <= beyond < len(self.verdicts) else self._name(target)

    def _name(self, token: int) -> str:
        if token < len(self.words):
            return self.words[token]
        if token not in self.signs:
            self.signs.append(token)
        return f"⟨{self.signs.index(token) + 1}⟩"


def _words(card: Card, found: Example, scored: int) -> str:
    read = found.source or found.asked
    replaced = sum(place.kind == REPLACED for place in read)
    said = counted(found.hidden, "is hidden", "are hidden").capitalize()
    said += f" and {replaced} replaced" if replaced else ""
    asked = f"the text has one answer, {found.whole}"
    if not found.whole:
        asked = f"{counted(scored, 'is', 'are')} scored"
    if found.parts:
        names = ", ".join(part.label for part in found.parts)
        said, asked = f"It is read as {names}", f"asked of all of it: {found.whole}"
    claims: Any = card.claims
    hides = f"Hidden from the model: {claims.hidden}."
    return f"A text of {len(read)} tokens as it is read. {said}; {asked}. {hides}"


def _placed(strip: Strip) -> list[tuple[float, int, float]]:
    """Left, line and width of each box, wrapped like text."""
    begin = 8.0 + (text_width(strip.label, SMALL) + 6 if strip.label else 0)
    found, left, line = [], begin, 0
    for place in strip.places:
        wide = max(22, text_width(place.word, 11) + 8, text_width(place.answer, 11) + 4)
        if left + wide > WIDE - 8:
            left, line = begin, line + 1
        found.append((left, line, wide))
        left += wide + _GAP
    return found


def _line(strip: Strip) -> int:
    """The height of a line: with room for answers, if there are any."""
    return _LINE if any(place.answer for place in strip.places) else _TALL + 8


def _high(strip: Strip) -> int:
    return (_placed(strip)[-1][1] + 1) * _line(strip) if strip.places else 0


def _draw_strip(drawing: Drawing, strip: Strip, top: int) -> None:
    """The boxes of a strip, which begins at that height."""
    theme = drawing.theme
    if strip.label:
        drawing.text(strip.label, 8, top + _TALL / 2, size=SMALL, quiet=True)
    for place, (x, line, wide) in zip(strip.places, _placed(strip), strict=True):
        y, middle = top + line * _line(strip), x + wide / 2
        fill = {HIDDEN: theme.quiet, SIGN: theme.paper}.get(place.kind, theme.panel)
        edge, width = (SERIES[1], 2) if place.kind == REPLACED else (theme.grid, 1)
        drawing.box(x, y, wide, _TALL, fill, edge, width)
        if place.word:
            quiet = place.kind == SIGN
            drawing.text(place.word, middle, y + _TALL / 2, size=11, anchor="middle", quiet=quiet)
        if place.answer:
            low = y + _TALL
            drawing.patch(
                [(middle - 4, low + 2), (middle + 4, low + 2), (middle, low + 6)], SERIES[0]
            )
            drawing.text(place.answer, middle, low + 13, size=11, anchor="middle", bold=True)
