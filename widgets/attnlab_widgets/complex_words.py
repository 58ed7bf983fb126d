"""How does a word of complex numbers move along a sentence?

    ComplexWordExplorer(embedding, words, initial=untrained)

One dimension of a word is an arrow: its length is the amplitude, and from one position to the next
it turns by the frequency. The explorer shows the arrows of one word or of two at every position,
the length of their sum (interference), and all dimensions of the words by frequency and amplitude,
before training and after. Everything is computed on the page, so a saved file stays alive.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import traitlets

from attnlab.figures.arguments import check_size
from attnlab.figures.labels import visible
from attnlab.figures.theme import SERIES, THEMES
from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab_widgets.base import STATIC, BaseWidget
from attnlab_widgets.drawing import Drawing

MOST_WORDS, MOST_POSITIONS = 64, 24
_WIDE, _HIGH, _LEFT = 920, 300, 64


class ComplexWordExplorer(BaseWidget):
    """The waves of some words of a complex embedding.

    ``embedding``  a ``ComplexEmbedding``
    ``words``      token → how it is shown, at most 64 of them
    ``initial``    the same embedding before training, to compare with
    ``positions``  how many positions are drawn, at most 24

    ``first``, ``second`` (indices into ``words``, -1 for no second word), ``dimension`` and
    ``stage`` ("trained" or "initial") can be read and set.
    """

    _esm = STATIC / "complex_words.js"

    first = traitlets.Int(0).tag(sync=True)
    second = traitlets.Int(-1).tag(sync=True)
    dimension = traitlets.Int(0).tag(sync=True)
    stage = traitlets.Unicode("trained").tag(sync=True)
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
        theme: str = "auto",
    ) -> None:
        check_size("positions", positions, MOST_POSITIONS, "positions")
        tokens = _tokens(embedding, words)
        waves = {"trained": _tables(embedding, tokens)}
        if initial is not None:
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
            dimension=_telling(waves["trained"]),
            positions=positions,
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
        most = len(self._waves["trained"]["amplitude"][0]) - 1
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

    def arrows(self) -> torch.Tensor:
        """What is drawn: (words, positions) complex numbers of the chosen dimension."""
        tables = self._waves[self.stage]
        chosen = [self.first] + ([self.second] if self.second >= 0 else [])
        r, w, theta = (
            torch.tensor([tables[name][word][self.dimension] for word in chosen])[:, None]
            for name in ("amplitude", "frequency", "phase")
        )
        return r * torch.polar(torch.ones(()), w * torch.arange(self.positions) + theta)

    def still(self) -> Drawing:
        """The chosen arrows and the length of their sum."""
        return _drawn(self)

    def description(self) -> str:
        """What is seen, in a sentence for each word."""
        sizes = self.arrows().abs()[:, 0].tolist()
        tables = self._waves[self.stage]
        chosen = [self.first] + ([self.second] if self.second >= 0 else [])
        return " ".join(
            f"“{self.words[word]}”, dimension {self.dimension}, {self.stage}: amplitude "
            f"{size:.2f}, {tables['frequency'][word][self.dimension]:.3f} radians per position."
            for word, size in zip(chosen, sizes, strict=True)
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
    theme = THEMES[widget.theme]
    drawing = Drawing(_WIDE, _HIGH, theme)
    arrows = widget.arrows()
    n = arrows.shape[1]
    step = (_WIDE - _LEFT - 16) / n
    radius, most = min(step / 2 - 3, 30), max(arrows.abs().max().item(), 1e-6)
    drawing.text(
        f"Dimension {widget.dimension} at each position ({widget.stage})",
        24,
        20,
        size=15,
        bold=True,
    )
    for p in range(n):
        x = _LEFT + step * (p + 0.5)
        for row, colour in zip(arrows, SERIES, strict=False):
            a, b = (part / most * radius for part in (row[p].real.item(), row[p].imag.item()))
            drawing.curve(((x, 62), (x, 62), (x + a, 62 - b), (x + a, 62 - b)), colour, 2)
            drawing.frame(x + a - 2, 60 - b, 4, 4, colour)
        drawing.text(str(p), x, 110, anchor="middle", quiet=True)
    total = arrows.sum(0).abs() if len(arrows) > 1 else arrows[0].real
    title = "Length of the sum" if len(arrows) > 1 else "Real part"
    drawing.text(f"{title} along the sentence", 24, 150)
    largest = max(total.abs().max().item(), 1e-6)
    heights = [225 - 50 * value / largest for value in total.tolist()]
    places = [_LEFT + step * (p + 0.5) for p in range(n)]
    points = list(zip(places, heights, strict=True))
    for one, other in itertools.pairwise(points):
        drawing.curve((one, one, other, other), SERIES[2], 2)
    chosen = [widget.first] + ([widget.second] if widget.second >= 0 else [])
    marks = ", ".join(f"{'blue' if not i else 'vermillion'}: {widget.words[word]}"
                      for i, word in enumerate(chosen))  # fmt: skip
    drawing.text(marks, _LEFT, _HIGH - 14, quiet=True)
    return drawing
