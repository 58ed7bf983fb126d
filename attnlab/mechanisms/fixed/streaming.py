r"""StreamingLLM: the first tokens and the last ones, so that a model can read without end.

A trained model puts much weight on the first tokens of its text, whatever they say: a softmax must
sum to one, and they are seen by all others. A sliding window that loses them breaks such a model.
StreamingLLM keeps the first s tokens, the attention sinks, beside a window of the last w, the
current one included:

$$o_i = \sum_{j \in S_i} \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j,\qquad S_i = \{0, \ldots, s - 1\} \cup \{i - w + 1, \ldots, i\}$$

Positions are those in the cache, not those in the text: the s + w tokens that are kept are numbered
0, 1, …, and the query has the last number. Inside the window distances are what they are in the
text. To the sinks they stop growing, where those in the text would become longer than any that the
model was trained on. Until the first token is lost, at i = s + w, both numberings are the same, and
the whole is causal attention; with s = 0 it is a sliding window.

Cost: $2 h n (s + w)(d + e)$ FLOPs, linear in n; a text of any length is kept as s + w tokens.

``naive``    the equation under the dense mask.
``blocked``  only the pairs of the pattern, block by block.

A layer with ``positions`` turns its queries twice, by the number of the token in the text for keys
of the window and by that in the cache for the sinks. Both stand side by side in queries of width
2d; a key has zeros in the half that is not for it.

Common mistakes: numbers of the text for the sinks; to keep keys that are turned already and turn
them again; to forget that the new token belongs to the w that are kept.

Departures.
- a layer that can be trained. The paper applies it to models that were trained with full
  attention.
- keys are kept as they are turned in the text, and the queries are turned for the sinks, which
  gives the same products as turning all keys at each step

Gives up. What lies between the first tokens and the window is not seen.

Xiao, Tian, Chen, Han, Lewis. Efficient Streaming Language Models with Attention Sinks. ICLR 2024,
arXiv:2309.17453, section 3.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.positions import Rotation, positions_of
from attnlab.core.probe import note
from attnlab.core.shapes import Context, KeyPadding, Tokens, checked
from attnlab.core.sparse.attention import Form, PatternAttention, PatternOptions, pattern_card

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class StreamingOptions(PatternOptions):
    """What is kept.

    ``sinks``   s, how many of the first tokens.
    ``window``  w, how many of the last ones, the current one included.
    """

    CAUSAL: ClassVar[str] = "always"
    CAUSAL_REASON: ClassVar[str] = "it keeps the last tokens of those that were read"

    sinks: Count = 4
    window: Size = 512

    def allowed(self, heads: int) -> Pattern:
        window = patterns.local(self.window - 1)
        if not self.sinks:
            return window
        return window | patterns.prefix(self.sinks)

    def numbers(self, slots: Tensor, padding: Tensor | None) -> Tensor:
        """The number of each query in the cache: how many of the tokens before it are kept."""
        if padding is None:
            return slots.clamp(max=self.sinks + self.window - 1)
        n = padding.shape[1]
        real = F.pad(padding.cumsum(1), (1, 0))  # before each place, and of all
        window = (slots - self.window + 1).clamp(min=min(self.sinks, n))
        lost = real[:, window] - real[:, min(self.sinks, n), None]
        return (real[:, slots + 1] - lost - 1).clamp(min=0)


# ---- module


class StreamingHeads(Heads):
    """Projections whose queries have one position for the window and another for the sinks."""

    def __init__(self, dim: int, heads: int, options: StreamingOptions, **given: Any) -> None:
        super().__init__(dim, heads, **given)
        self.options = options

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries and keys (b, h, n, 2d), and values."""
        turn: Rotation = self.positions  # type: ignore[assignment]
        if context is not None:
            raise ValueError("a stream has no cross-attention: its window is of its own tokens")
        self.check_input(x, "x")
        x, slots = zero_nonfinite_padding(x, padding), start + torch.arange(x.shape[1])
        slots = slots.to(x.device)
        if at is None:
            at = positions_of(x.shape[1], x.device, padding=padding, start=start)
        q, k = (self.split(part(x), self.head_dim) for part in (self.query, self.key))
        near, far = turn.queries(q, at), turn.queries(q, self.options.numbers(slots, padding))
        q = torch.cat((near, far), dim=-1) * 2**0.5  # scores are divided by √(2d)
        k, sink = turn.keys(k, at), (slots < self.options.sinks)[:, None]
        k = torch.cat((k.masked_fill(sink, 0), k.masked_fill(~sink, 0)), dim=-1)
        return note("queries", q), note("keys", k), note("values", self.values(x))


class StreamingAttention(PatternAttention):
    """Multi-head attention to the first and the last tokens: (b, n, dim) → (b, n, dim).

    ``step`` keeps s + w tokens at most, the new one included.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Form = "auto", bias: bool = False,
        options: StreamingOptions = StreamingOptions(), positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, options, form=form, bias=bias, positions=positions)
        if positions is not None and options.sinks:
            self.heads = StreamingHeads(dim, heads, options, bias=bias, positions=positions)


# ---- card

n, s, w = letters("n s w")

CARD = pattern_card(
    __doc__,
    name="streaming",
    options=StreamingOptions,
    pairs=lambda _: n * (s + w),
    letters={"s": "sinks", "w": "window"},
    variants=(
        {"sinks": 2, "window": 3},
        {"sinks": 0, "window": 4},
        {"sinks": 1, "window": 1},
    ),
    build=StreamingAttention,
    aliases=("streaming_llm", "attention_sinks"),
    small_options={"sinks": 2, "window": 6},
)
