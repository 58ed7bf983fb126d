"""How does a word of complex numbers move along a sentence?

    ComplexWordExplorer(embedding, words, initial=untrained)

One dimension of a word is an arrow: its length is the amplitude, and from one position to the next
it turns by the frequency. The explorer shows the arrows of one word or of two at every position,
the length of their sum (interference), and all dimensions of the words by frequency and amplitude,
before training and after. Everything is computed on the page, so a saved file stays alive.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import traitlets

from attnlab.core.arguments import check_size
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.figures.theme import SERIES, THEMES
from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab_widgets.base import STATIC
from attnlab_widgets.legend import SaysUntrained, draw_untrained

MOST_WORDS, MOST_POSITIONS = 64, 24
_WIDE, _LEFT = 920, 64


class ComplexWordExplorer(SaysUntrained):
    """The waves of some words of a complex embedding.

    ``embedding``  a ``ComplexEmbedding``
    ``words``      token → how it is shown, at most 64 of them
    ``initial``    the same embedding before training, to compare with
    ``positions``  how many positions are drawn, at most 24
    ``untrained``  whether nobody trained an embedding that stands alone: the picture then says so,
                   as it does of ``initial``

    ``first``, ``second`` (indices into ``words``, -1 for no second word), ``dimension`` and
    ``stage`` can be read and set. Stages are "trained" and "initial" where ``initial`` is given;
    otherwise there is one, "as given": the explorer cannot know whether it was trained.
    """

    _esm = STATIC / "complex_words.js"

    first = traitlets.Int(0).tag(sync=True)
    second = traitlets.Int(-1).tag(sync=True)
    dimension = traitlets.Int(0).tag(sync=True)
    stage = traitlets.Unicode().tag(sync=True)
    positions = traitlets.Int(16).tag(sync=True)
    words: Any = traitlets.List().tag(sync=True)
    _waves: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        embedding: ComplexEmbedding,
        words: Mapping[int, str],
        *,
        initial: ComplexEmbedding | None = None,
        positions: int = 16,
        untrained: bool = False,
        theme: str = "auto",
    ) -> None:
        check_size("positions", positions, MOST_POSITIONS, "positions")
        tokens = _tokens(embedding, words)
        stage = "as given" if initial is None else "trained"
        waves = {stage: _tables(embedding, tokens)}
        if initial is not None:
            if untrained:
                raise ValueError("`untrained` goes with an embedding that has no `initial` one")
            if (initial.vocab, initial.dim) != (embedding.vocab, embedding.dim):
                raise ValueError(
                    f"initial should have vocab={embedding.vocab} and dim={embedding.dim} as the "
                    f"embedding has, got {initial.vocab} and {initial.dim}"
                )
            waves["initial"] = _tables(initial, tokens)
        super().__init__(
            _waves=waves,
            words=[visible(text) for text in words.values()],
            second=1 if len(tokens) > 1 else -1,
            dimension=_telling(waves[stage]),
            stage=stage,
            positions=positions,
            untrained=untrained,
            theme=theme,
        )

    @traitlets.validate("words")
    def _words_stay(self, proposal: Any) -> list[str]:
        if self.words and proposal["value"] != self.words:
            raise traitlets.TraitError("`words` are chosen when the explorer is made")
        return list(proposal["value"])

    @traitlets.validate("first", "second")
    def _a_word(self, proposal: Any) -> int:
        least, value = (-1 if proposal.trait.name == "second" else 0), proposal.value
        if not least <= value < len(self.words):
            raise traitlets.TraitError(
                f"{proposal.trait.name} should be one of the {len(self.words)} words, {least} … "
                f"{len(self.words) - 1}, got {value}"
            )
        return int(value)

    @traitlets.validate("dimension")
    def _a_dimension(self, proposal: Any) -> int:
        most = len(next(iter(self._waves.values()))["amplitude"][0]) - 1
        if not 0 <= proposal.value <= most:
            raise traitlets.TraitError(f"dimension should be 0 … {most}, got {proposal.value}")
        return int(proposal.value)

    @traitlets.validate("stage")
    def _a_stage(self, proposal: Any) -> str:
        if proposal.value not in self._waves:
            raise traitlets.TraitError(
                f"stage should be one of {', '.join(self._waves)}, got {proposal.value!r}"
            )
        return str(proposal.value)

    @traitlets.validate("positions")
    def _some_positions(self, proposal: Any) -> int:
        if not 1 <= proposal.value <= MOST_POSITIONS:
            raise traitlets.TraitError(
                f"positions should be 1 … {MOST_POSITIONS}, got {proposal.value}"
            )
        return int(proposal.value)

    def arrows(self, stage: str | None = None) -> torch.Tensor:
        """What is drawn: (words, positions) complex numbers of the chosen dimension."""
        tables = self._waves[self.stage if stage is None else stage]
        chosen = self._chosen()
        r, w, theta = (
            torch.tensor([tables[name][word][self.dimension] for word in chosen])[:, None]
            for name in ("amplitude", "frequency", "phase")
        )
        return r * torch.polar(torch.ones(()), w * torch.arange(self.positions) + theta)

    def is_untrained(self, stage: str) -> bool:
        """Whether nobody trained what this stage shows."""
        return self.untrained or stage == "initial"

    def _chosen(self) -> list[int]:
        return [self.first] + ([self.second] if self.second >= 0 else [])

    def still(self) -> Drawing:
        """The chosen arrows and the length of their sum, for every stage."""
        return _drawn(self)

    def description(self) -> str:
        """What is seen, in a sentence for each word."""
        sizes = self.arrows().abs()[:, 0].tolist()
        tables, words = self._waves[self.stage], self._chosen()
        stage = f", {self.stage}" if len(self._waves) > 1 else ""
        return " ".join(
            f"“{self.words[word]}”, dimension {self.dimension}{stage}: amplitude "
            f"{size:.2f}, {tables['frequency'][word][self.dimension]:.3f} radians per position."
            for word, size in zip(words, sizes, strict=True)
        )

    def __repr__(self) -> str:
        return f"ComplexWordExplorer: {self.description()}"


def _tokens(embedding: Any, words: Any) -> list[int]:
    if not isinstance(embedding, ComplexEmbedding):
        raise TypeError(f"embedding should be a ComplexEmbedding, got {type(embedding).__name__}")
    if not isinstance(words, Mapping) or not words:
        raise TypeError('words should be a dict from tokens to texts, as in {2: "the", 5: "of"}')
    if len(words) > MOST_WORDS:
        raise ValueError(f"at most {MOST_WORDS} words can be shown, got {len(words)}")
    for token in words:
        if isinstance(token, bool) or not isinstance(token, int):
            raise TypeError(f"a token should be a whole number, got {token!r}")
        if not 0 <= token < embedding.vocab:
            raise ValueError(f"tokens lie in 0 … {embedding.vocab - 1}, got {token}")
    return list(words)


def _tables(embedding: ComplexEmbedding, tokens: Sequence[int]) -> dict[str, list[list[float]]]:
    """Amplitude, frequency and phase of the words, (words, dim) each."""
    angles = embedding.angles
    zero = torch.zeros(1, 1)
    given = {
        "amplitude": embedding.amplitude,
        "frequency": angles.frequency,
        "phase": zero if angles.phase is None else angles.phase,
    }
    full = {name: x.detach().float().cpu().expand(embedding.vocab, embedding.dim)
            for name, x in given.items()}  # fmt: skip
    return {
        name: [[round(value, 5) for value in row] for row in x[list(tokens)].tolist()]
        for name, x in full.items()
    }


def _telling(tables: Mapping[str, list[list[float]]]) -> int:
    """The dimension in which the first two words differ most in speed, both arrows being long."""
    r, w = (torch.tensor(tables[name][:2]).abs() for name in ("amplitude", "frequency"))
    return int(((w[0] - w[-1]).abs().clamp(1e-6, 1) * r.amin(0).clamp(min=1e-6)).argmax())


def _drawn(widget: ComplexWordExplorer) -> Drawing:
    """A row of arrows for each stage, the chosen one first, and the curve of each below them."""
    stages = sorted(widget._waves, key=lambda stage: stage != widget.stage)
    arrows = {stage: widget.arrows(stage) for stage in stages}
    most = max(max(found.abs().max().item() for found in arrows.values()), 1e-6)
    drawing = Drawing(_WIDE, 200 + 92 * len(stages), THEMES[widget.theme])
    title = f"Dimension {widget.dimension} at each position"
    drawing.text(title, 24, 20, size=15, bold=True)
    step = (_WIDE - _LEFT - 16) / widget.positions
    places = [_LEFT + step * (p + 0.5) for p in range(widget.positions)]
    radius, top = min(step / 2 - 3, 30) / most, 36
    for stage in stages:
        if len(stages) > 1:
            drawing.text(stage, 24, top + 2, quiet=True)
        if widget.is_untrained(stage):
            draw_untrained(drawing, 6, top + 40)
        for p, x in enumerate(places):
            for z, colour in zip(arrows[stage][:, p], SERIES, strict=False):
                tip = (x + radius * z.real.item(), top + 30 - radius * z.imag.item())
                drawing.line([(x, top + 30), tip], colour, 2)
                drawing.frame(tip[0] - 2, tip[1] - 2, 4, 4, colour)
            drawing.text(str(p), x, top + 72, anchor="middle", quiet=True)
        top += 92
    _curves(drawing, arrows, places, top + 20)
    marks = ", ".join(
        f"{colour}: {widget.words[word]}"
        for word, colour in zip(widget._chosen(), ("blue", "vermillion"), strict=False)
    )
    drawing.text(marks, _LEFT, drawing.high - 14, quiet=True)
    return drawing


def _curves(
    drawing: Drawing, arrows: Mapping[str, torch.Tensor], places: Sequence[float], top: float
) -> None:
    """Two words: the length of their sum, from 0; one word: its real part."""
    two = all(len(found) > 1 for found in arrows.values())
    curves = [found.sum(0).abs() if two else found[0].real for found in arrows.values()]
    names = ", ".join(f"{look}: {x}" for x, look in zip(arrows, ("solid", "dashed"), strict=False))
    drawing.text(
        f"{'Length of the sum' if two else 'Real part'} along the sentence"
        + (f" ({names})" if len(arrows) > 1 else ""),
        24,
        top,
    )
    high = max(max(curve.abs().max().item() for curve in curves), 1e-6)
    low = 0.0 if two else -high
    for value in (low, high):
        y = top + 84 - 66 * (value - low) / (high - low)
        drawing.line([(_LEFT, y), (_WIDE - 16, y)], drawing.theme.grid)
        label = f"{value:.2f}".replace("-", "−").removesuffix(".00")
        drawing.text(label, _LEFT - 6, y, anchor="end", size=11, quiet=True)
    for curve, dash in zip(curves, ("", "7 4"), strict=False):
        heights = [top + 84 - 66 * (value - low) / (high - low) for value in curve.tolist()]
        drawing.line(list(zip(places, heights, strict=True)), SERIES[2], 2, dash)
