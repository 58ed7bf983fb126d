r"""Complex word embeddings: a word is a wave along the sentence, with one value at each position.

A Transformer usually adds a vector of the position to a vector of the word, so the word's part is
the same wherever it stands. Here each dimension of a word is a complex number that turns as the
word moves: its length $r$ says what the word means, its frequency $\omega$ how much order matters
for this word in this dimension, its initial phase $\theta$ where the turning starts.

$$f(j, p) = r_j \, e^{i(\omega_j p + \theta_j)} \in \mathbb C^D$$

for word j at position p, with $r_j$, $\omega_j$, $\theta_j$ real vectors of width D (``dim``).

Moving a word by k positions multiplies it by $e^{i\omega_j k}$, which does not depend on p, and
leaves $|f| = |r|$. The paper proves that bounded functions with this property are
$z_2 z_1^p$ with $|z_1| \le 1$, and takes $|z_1| = 1$. A frequency 0 is an ordinary word
embedding.

Sinusoidal positions are the special case $r = 1$, $\theta = 0$ and
$\omega_d = 10000^{-2d/\text{width}}$ for all words: column 2d of the sinusoidal table is
$\mathrm{Im} f_d$ and column 2d + 1 is $\mathrm{Re} f_d$.

Parameters, for a vocabulary of V words: D V for each of the three tables, D for one
shared by all words (``"words"``), V for one shared by all dimensions (``"dimensions"``). The
paper's default has no phases, 2 D V; with frequencies shared by words it is D V + D, shared by
dimensions D V + V.

``naive``       complex numbers: r times ``torch.polar(1, angle)``.
``real_pairs``  r cos(angle) and r sin(angle), the real and imaginary part.

Both compute angles in float32 or wider: bfloat16 cannot tell all positions beyond 256 apart. In
float32 the angle is off by up to p·ω / 2²⁴ radians.

The paper's letters: $\omega_j = 2\pi / p_j$ with periods $p_j$; $pos$ is our p; |W| is our V.

Misprints. The paper prints the frequencies of sinusoidal positions as $10000^{2k/d}$, without the
minus sign. Section 3.1 lists the sizes of the two sharing schemes in the wrong order; its Table 4
has them right. The authors' angles are reduced mod 2π, which changes no value.

Departures.
- positions are given, and count from 0; the paper's appendix counts from 1, its code down. The
  authors' classification code counts from n - 1 to 0. A shift of all positions turns each word by a
  phase of its own.
- frequencies are parameters, not periods. They start at $10000^{-2\lfloor d/2 \rfloor / D}$ for
  every word, in pairs of equal ones, as in the authors' code.

Wang, Zhao, Lioma, Li, Zhang, Simonsen. Encoding Word Order in Complex Embeddings. ICLR 2020,
arXiv:1912.12333, section 2.3 and appendices A and C.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.complex_linear import as_pairs
from attnlab.core.lookup import checked_ids
from attnlab.core.options import Size
from attnlab.core.positions import Positions
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.mechanisms.positions.complex_embedding.tables import (
    AngleTables,
    ComplexEmbeddingOptions,
    table_shape,
)

Words = Int[Tensor, "b n"]
Table = Float[Tensor, "#vocab #dim"]
"""One row per word and one column per dimension; a single row or column is shared."""

Waves = Complex[Tensor, "b n dim"]

# ---- naive


@checked
def naive(
    tokens: Words, positions: Positions,
    amplitude: Table, frequency: Table, phase: Table | None = None,
) -> Waves:  # fmt: skip
    """The equation (Wang et al., eq. 5). Without ``phase`` all words start at angle 0.

    ``torch.polar`` has no derivative with respect to an amplitude of 0 and a wrong one for a
    negative amplitude, so the amplitude is multiplied to a number of modulus 1.
    """
    tokens = checked_ids(tokens, _rows(amplitude, frequency, phase), "tokens")
    angle = angles(tokens, positions, frequency, phase)
    lengths = note("amplitudes", look_up(amplitude, tokens))
    waves = lengths * torch.polar(torch.ones_like(angle), angle)
    return waves.expand(*tokens.shape, -1)


def look_up(table: Tensor, tokens: Tensor) -> Tensor:
    """The rows of ``tokens``; the one row of a table that all words share."""
    return upcast(table[0] if len(table) == 1 else table[tokens])


def angles(tokens: Tensor, positions: Tensor, frequency: Tensor, phase: Tensor | None) -> Tensor:
    """ω p + θ of every word at its position, (b, n, dim); 1 where all words or dimensions share."""
    turned = look_up(frequency, tokens) * positions[..., None]
    return note("angles", turned if phase is None else turned + look_up(phase, tokens))


def _rows(*tables: Tensor | None) -> int:
    """The number of words; no limit where all words share all tables."""
    rows = max(len(table) for table in tables if table is not None)
    return rows if rows > 1 else 2**31


# ---- real pairs


@checked
def real_pairs(
    tokens: Words, positions: Positions,
    amplitude: Table, frequency: Table, phase: Table | None = None,
) -> Waves:  # fmt: skip
    """``naive`` by cosines and sines of real numbers."""
    tokens = checked_ids(tokens, _rows(amplitude, frequency, phase), "tokens")
    angle = angles(tokens, positions, frequency, phase)
    lengths = note("amplitudes", look_up(amplitude, tokens))
    waves = torch.complex(lengths * angle.cos(), lengths * angle.sin())
    return waves.expand(*tokens.shape, -1)


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "real_pairs": real_pairs}

# ---- module


class ComplexEmbedding(nn.Module):
    """Words at positions: tokens (b, n) and positions (n,) or (b, n) → (b, n, dim) complex numbers,
    or with ``output="pairs"`` (b, n, 2·dim) real ones, [real, imaginary].

    Pairs are of the dtype of the amplitudes; complex numbers are complex64 or complex128.
    """

    @checked
    def __init__(
        self, vocab: Size, dim: Size, *,
        form: Literal["naive", "real_pairs"] = "real_pairs",
        output: Literal["complex", "pairs"] = "complex",
        options: ComplexEmbeddingOptions = ComplexEmbeddingOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocab, self.dim, self.form, self.output = vocab, dim, form, output
        self.options = options
        if options.filler is not None and options.filler >= vocab:
            raise ValueError(f"filler should be a word in 0 … {vocab - 1}, got {options.filler}")
        table = torch.randn(table_shape(vocab, dim, options.amplitudes)) * options.scale
        self.amplitude = nn.Parameter(table)
        self.angles = AngleTables(vocab, dim, options)
        if options.filler is not None:
            self.amplitude.data[options.filler] = 0

    @checked
    def forward(
        self, tokens: Words, positions: Positions
    ) -> Complex[Tensor, "b n dim"] | Float[Tensor, "b n two_dim"]:
        amplitude = self._without_filler(self.amplitude)
        frequency, phase = self.angles.frequency, self.angles.phase
        tokens = checked_ids(tokens, self.vocab, "tokens")
        waves = FORMS[self.form](tokens, positions, amplitude.to(frequency.dtype), frequency, phase)
        waves = waves.expand(-1, -1, self.dim)  # where all dimensions share all tables
        if self.output == "complex":
            return waves
        return as_pairs(waves).to(self.amplitude.dtype)

    def _without_filler(self, amplitude: Tensor) -> Tensor:
        filler = self.options.filler
        if filler is None:
            return amplitude
        rows = torch.arange(len(amplitude), device=amplitude.device)
        return amplitude.masked_fill((rows == filler)[:, None], 0)

    def extra_repr(self) -> str:
        own = str(self.options)
        return f"{self.vocab}, {self.dim}, output={self.output!r}{', ' if own else ''}{own}"


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="complex",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    time=2 * n * dim,
    memory=2 * n * dim,
    options=ComplexEmbeddingOptions,
    notes={"naive": ("angles", "amplitudes"), "real_pairs": ("angles", "amplitudes")},
    variants=(
        {"frequencies": "words", "phases": "none"},
        {"frequencies": "dimensions", "start": "uniform", "phases": "words"},
        {"amplitudes": "dimensions", "start": "normal", "phases": "dimensions"},
        {"frozen": True, "phases": "none"},
    ),
    build=ComplexEmbedding,
)
