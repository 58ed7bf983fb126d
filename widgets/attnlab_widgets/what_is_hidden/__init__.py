"""What does a model learn from? One text as every objective hands it to a model.

    WhatIsHidden()                                       # a sentence, all objectives
    WhatIsHidden("the cat sat on the mat again", seed=2)
    WhatIsHidden.of({"masked_lm": (model, objective)}, "for name in", task)   # with its guesses

Each row is an objective and each column a token of the text: what is hidden, what is replaced, and
at which tokens an answer is scored. Below, the chosen objective: what goes in, what must come out,
what a trained model guesses at a place, and where its loss comes from as it learns. The draws for
some rates, lengths of spans and seeds are in the page, so a saved file stays alive.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import traitlets
from torch import nn

from attnlab import catalog
from attnlab.core.arguments import check_list, check_mapping
from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens import objective_examples
from attnlab.lens.objective_examples import (
    HIDDEN,
    KEPT,
    OPEN,
    RATES,
    REPLACED,
    SEEDS,
    SHOWN,
    SIGN,
    SPANS,
    Example,
    Place,
    answered,
    draw,
    knobs,
    options_of,
)
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error, check_range
from attnlab_widgets.what_is_hidden.picture import picture

TEXT = (
    "the old cat saw the dog and the dog ran to the old cat . all of them slept by the fire now ."
)
LEAST, MOST = 4, 40  # tokens
MOST_STEPS = 60
KINDS = (SHOWN, HIDDEN, REPLACED, KEPT, OPEN, SIGN)
STORED = Path(__file__).parent.joinpath("what_is_hidden.json")


class WhatIsHidden(BaseWidget):
    """One text, all objectives side by side.

    ``text``        words, or a text that is cut at its spaces: 4 to 40 of them
    ``objectives``  names of the catalogue; all that can be shown unless given
    ``objective``   the one that is read out: "masked_lm" if it is there
    ``rate``        0.15, 0.3 or 0.5: of tokens that are hidden, where an objective has a rate
    ``span``        1, 3 or 6: the mean length of a span, where an objective has spans
    ``seed``        0, 1 or 2: decides what is hidden
    ``place``       the place of the chosen objective that is read out, counted from 0

    ``objective``, ``rate``, ``span``, ``seed`` and ``place`` can be read and set.
    """

    _esm = STATIC / "what_is_hidden.js"

    objective = traitlets.Unicode("").tag(sync=True)
    rate = Checked(RATES[0]).tag(sync=True)
    span = Checked(SPANS[1]).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)
    place = traitlets.Int(0).tag(sync=True)
    _hidden: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        objectives: Sequence[str] | None = None,
        objective: str | None = None,
        rate: float = RATES[0],
        span: int = SPANS[1],
        seed: int = 0,
        place: int | None = None,
        theme: str = "auto",
        _told: Mapping[str, Any] | None = None,
    ) -> None:
        if _told is None:
            words = _words(text)
            _told = _all(words, objectives)
        super().__init__(_hidden=dict(_told), theme=theme)
        names = self.objectives
        first = "masked_lm" if "masked_lm" in names else names[0]
        self.objective = first if objective is None else objective
        self.rate, self.span, self.seed = rate, span, seed
        self.place = self.first_scored() if place is None else place

    @classmethod
    def of(
        cls,
        learned: Mapping[str, tuple[nn.Module, nn.Module]],
        inputs: str,
        task: Any,
        *,
        history: Mapping[str, Mapping[str, Any]] | None = None,
        **given: Any,
    ) -> "WhatIsHidden":
        """What trained models guess, each at the places where its objective asks.

        ``learned``  name of an objective → (model, objective): what ``fit`` has trained
        ``inputs``   a text, which the task cuts into its tokens: 4 to 40 of them are shown
        ``task``     with ``encode`` and ``tokens``, such as "documentation"
        ``history``  name → ``LossByPlace.as_dict()``: the loss of each place while it was trained
        ``given``    ``objective``, ``rate``, ``span``, ``seed``, ``place``, ``theme``, as above
        """
        return cls(_told=told_of(learned, inputs, task, history), **given)

    @classmethod
    def stored(cls, **given: Any) -> "WhatIsHidden":
        """A text of the Python documentation with the guesses and losses of eight small encoders,
        each after 1,000 updates by its own objective (``tools.hidden_text`` trains them)."""
        return cls(_told=_stored(), **given)

    # What follows from the state

    @property
    def objectives(self) -> list[str]:
        """The objectives that are shown."""
        return [row["name"] for row in self._hidden["objectives"]]

    @property
    def left_out(self) -> dict[str, str]:
        """The objectives that cannot be shown on this text, with their reasons."""
        return dict(self._hidden["left_out"])

    @property
    def tokens(self) -> list[str]:
        """The words of the text, made visible."""
        return list(self._hidden["tokens"])

    def drawn(self, objective: str | None = None) -> dict[str, Any]:
        """What the page knows of the present draw of an objective; of the chosen one unless named.

        ``kinds`` and ``pays`` are of the tokens of the text; ``source`` and ``asked`` are places
        (word, answer, kind, token of the text); ``guesses`` are those of a model at each place.
        """
        row = self._row(self.objective if objective is None else objective)
        found: dict[str, Any] = row["draws"][self._at(row)]
        return found

    def first_scored(self) -> int:
        """The first place of the present draw whose answer is scored; 0 if none is."""
        scored = (at for at, place in enumerate(self.drawn()["asked"]) if place[1] >= 0)
        return next(scored, 0)

    def _row(self, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self._hidden["objectives"]
        return rows[self.objectives.index(name)]

    def _at(self, row: Mapping[str, Any]) -> int:
        rate = RATES.index(self.rate) if row["rate"] else 0
        span = SPANS.index(self.span) if row["span"] else 0
        return (rate * (len(SPANS) if row["span"] else 1) + span) * SEEDS + self.seed

    def description(self) -> str:
        """How much of the text is scored, and what became of it."""
        return f"{self.objective}: {self.drawn()['said']}"

    def still(self) -> Drawing:
        """All objectives on the text, and what the chosen one reads and asks."""
        return picture(self)

    def __repr__(self) -> str:
        return f"WhatIsHidden: {self.description()}"

    # What may be set

    @traitlets.validate("objective")
    def _known(self, proposal: Any) -> str:
        return as_trait_error(_named, proposal["value"], self.objectives)

    @traitlets.validate("rate", "span")
    def _on_the_grid(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        return as_trait_error(_of_grid, name, value, RATES if name == "rate" else SPANS)

    @traitlets.validate("seed", "place")
    def _in_range(self, proposal: Any) -> int:
        name = proposal["trait"].name
        count = SEEDS if name == "seed" else len(self.drawn()["asked"])
        return as_trait_error(check_range, name, proposal["value"], count)

    @traitlets.observe("objective", "rate", "span", "seed")
    def _another(self, _: Any) -> None:
        """A place beyond the end of another draw becomes its last one."""
        self.place = min(self.place, len(self.drawn()["asked"]) - 1)


def _named(value: Any, names: Sequence[str]) -> str:
    check_choice("objective", value, names)
    return str(value)


def _of_grid(name: str, value: Any, values: Sequence[float]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in values:
        shown = ", ".join(map(str, values))
        raise ValueError(f"`{name}` should be one of {shown}, for which draws are stored")
    return values[values.index(value)]


# What is given


def _words(text: Any) -> list[str]:
    if text is None:
        text = TEXT
    if not isinstance(text, str):
        text = check_list("text", text)
        if any(not isinstance(word, str) for word in text):
            raise TypeError("`text` should be a text, or a list of words")
    words = text.split() if isinstance(text, str) else list(text)
    if not LEAST <= len(words) <= MOST:
        raise ValueError(f"`text` should have {LEAST} to {MOST} words, got {len(words)}")
    return words


def _all(words: list[str], names: Sequence[str] | None) -> dict[str, Any]:
    """The objectives on a text of words; one that cannot take it is left out, unless named."""
    if names is not None and not (names := check_list("objectives", names)):
        raise ValueError("`objectives` should name at least one, got an empty list")
    table, rows, left_out = Table(), list[dict[str, Any]](), dict[str, str]()
    shown = _shown(words)
    for name in _catalogue() if names is None else names:
        check_choice("objective", name, tuple(catalog.with_role("objective")))
        try:
            rows.append(
                _told_row(name, table, lambda *given, name=name: _plain(name, shown, given))
            )
        except ValueError as error:
            if names is not None:
                raise ValueError(f"{name} cannot be shown on this text: {error}") from error
            left_out[name] = str(error)
    tokens = shown[:-1]
    return {"tokens": tokens, "words": table.words, "objectives": rows, "left_out": left_out}


def _shown(words: Sequence[str]) -> list[str]:
    return [visible(word, 24) or "∅" for word in words]


def _plain(name: str, words: Sequence[str], given: Any) -> Example:
    rate, span, seed = given
    return objective_examples.example(name, words, rate=rate, span=span, seed=seed)


def _catalogue() -> list[str]:
    """All objectives, in the order of their names."""
    return sorted({card.name for card in catalog.with_role("objective").values()})


class Table:
    """Words by number: a page holds each once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.known: dict[str, int] = {}

    def at(self, word: str) -> int:
        """-1 for no word."""
        if not word:
            return -1
        if word not in self.known:
            self.known[word] = len(self.words)
            self.words.append(word)
        return self.known[word]


def _told_row(name: str, table: Table, made: Any, guesses: Any = None) -> dict[str, Any]:
    """An objective with its draws; ``made(rate, span, seed)`` makes one."""
    rate, span = knobs(name)
    grid = product(RATES if rate else (None,), SPANS if span else (None,), range(SEEDS))
    draws = []
    for given in grid:
        found = made(*given)
        told = _told_draw(found, table)
        if guesses is not None:
            told["guesses"] = [
                [[table.at(visible(guess.answer, 24) or "∅"), round(100 * guess.probability)]
                 for guess in place]
                for place in guesses(found)
            ]  # fmt: skip
        draws.append(told)
    title = catalog.with_role("objective")[name].title
    return {"name": name, "title": title, "rate": rate, "span": span, "draws": draws}


def _told_draw(found: Example, table: Table) -> dict[str, Any]:
    return {
        "kinds": "".join(str(KINDS.index(kind)) for kind in found.kinds),
        "pays": "".join(str(int(pays)) for pays in found.pays),
        "source": [_told_place(place, table) for place in found.source],
        "asked": [_told_place(place, table) for place in found.asked],
        "whole": found.whole,
        "said": said(found),
    }


def _told_place(place: Place, table: Table) -> list[int]:
    return [table.at(place.word), table.at(place.answer), KINDS.index(place.kind), place.at]


def said(found: Example) -> str:
    """What became of the text, and what is scored, in a sentence or two."""
    n, paid = len(found.kinds), sum(found.pays)
    counts = {kind: found.kinds.count(kind) for kind in KINDS}
    parts = []
    for kind, words in ((HIDDEN, "hidden"), (REPLACED, "replaced"), (OPEN, "read from both sides")):
        if counts[kind]:
            parts.append(f"{counts[kind]} {'is' if counts[kind] == 1 else 'are'} {words}")
    became = f"of {n} tokens {' and '.join(parts)}" if parts else f"all {n} tokens are shown"
    if found.whole:
        return f"{became}; one answer for the whole text: {found.whole}."
    kept = f", {counts[KEPT]} of them shown as they are" if 0 < counts[KEPT] < paid else ""
    return (
        f"{became}; {paid} {'is' if paid == 1 else 'are'} asked for ({100 * paid / n:.0f} %){kept}."
    )


# Trained models


def told_of(
    learned: Any, inputs: Any, task: Any, history: Any = None, rest: bool = True
) -> dict[str, Any]:
    """What the page is told of models that have learned; other objectives of the catalogue are
    shown without guesses, if ``rest``."""
    pairs = check_mapping("learned", learned, '{"masked_lm": (model, objective)}')
    if not isinstance(inputs, str):
        raise TypeError(f"`inputs` should be a text, got a {type(inputs).__name__}")
    for need in ("encode", "tokens", "vocab"):
        if not hasattr(task, need):
            raise TypeError(
                "`task` should have encode, tokens and vocab, as 'documentation' has; a "
                f"{type(task).__name__} has no {need}"
            )
    tokens = task.encode(inputs)
    if not LEAST <= len(tokens) <= MOST:
        raise ValueError(f"`inputs` should have {LEAST} to {MOST} tokens, got {len(tokens)}")
    vocabulary = [visible(name, 24) or "∅" for name in task.tokens(range(task.vocab))]
    table, rows, left_out = Table(), list[dict[str, Any]](), dict[str, str]()
    known = dict(history or {})
    for name in known:
        check_choice("objective of `history`", name, tuple(pairs))
    for name in [*pairs, *(each for each in _catalogue() if rest and each not in pairs)]:
        check_choice("objective", name, tuple(catalog.with_role("objective")))
        try:
            rows.append(_learned_row(name, pairs.get(name), tokens, vocabulary, table))
        except ValueError as error:
            if name in pairs:
                raise
            left_out[name] = str(error)
        else:
            if name in known:
                rows[-1]["history"] = _history(name, known[name], rows[-1])
    own = [vocabulary[token] for token in tokens.tolist()][:-1]
    return {"tokens": own, "words": table.words, "objectives": rows, "left_out": left_out}


def _learned_row(
    name: str, pair: Any, tokens: torch.Tensor, vocabulary: list[str], table: Table
) -> dict[str, Any]:
    if pair is None:
        card = catalog.with_role("objective")[name]
        given: dict[str, Any] = {"vocab": len(vocabulary)} if "vocab" in card.option_names() else {}
        model, objective = None, catalog.build(name, **given)
    else:
        model, objective = pair

    def made(rate: float | None, span: int | None, seed: int) -> Example:
        return draw(name, with_options(objective, **options_of(name, rate, span)), tokens,
                    vocabulary, seed)  # fmt: skip

    if model is None:
        return _told_row(name, table, made)
    return _told_row(name, table, made, lambda found: answered(model, objective, found))


def with_options(objective: nn.Module, **changes: Any) -> nn.Module:
    """The same objective, sharing all that it has learned, with other options."""
    if not changes:
        return objective
    found = copy.copy(objective)
    found.options = replace(objective.options, **changes)  # type: ignore[type-var]
    return found


def _history(name: str, given: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    found = check_mapping("history", given, "LossByPlace(…).as_dict()")
    steps, losses = list(found.get("steps", ())), [list(each) for each in found.get("losses", ())]
    places = len(row["draws"][history_draw(row)]["asked"])
    if not 1 <= len(steps) <= MOST_STEPS or [len(each) for each in losses] != [places] * len(steps):
        raise ValueError(
            f"the history of {name} should have 1 to {MOST_STEPS} steps and a loss for each of its "
            f"{places} places at every one of them; give LossByPlace(…).as_dict() of seed 0, rate "
            f"{RATES[0]} and spans of {SPANS[1]}"
        )
    beside = [round(float(each), 3) for each in found.get("beside", [0.0] * len(steps))]
    rounded = [[round(max(float(loss), 0.0), 3) for loss in line] for line in losses]
    return {"steps": [int(step) for step in steps], "losses": rounded, "beside": beside}


@cache
def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def history_draw(row: Mapping[str, Any]) -> int:
    """Which of the draws of an objective a history belongs to: rate 0.15, span 3, seed 0."""
    return (SPANS.index(3) if row["span"] else 0) * SEEDS
