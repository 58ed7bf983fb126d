r"""Edge probes: which layers of a frozen encoder answer a question about one span, or about two?

"Is this phrase a subject?", "do these two words name the same thing?": a probe is given the states
of all layers and one or two spans of tokens, and answers with one of several labels.

$$h_i = \gamma \sum_{l=0}^{L} s_l\, h_i^{(l)},\qquad s = \operatorname{softmax}(a)
  \qquad\text{(scalar mix: one set per question)}$$

The mixed states are projected, the tokens of a span are pooled by attention with a learned query,
the spans are put beside each other, and two linear layers give a logit for each label, trained as
yes or no each. Layer 0 is the embedding, L the last layer. Two readings say where the answer is:

**Centre of gravity** of the mix of a probe that sees all layers,
$E_s = \sum_l l\, s_l$. If training left s near uniform it is L / 2 and says nothing, so
$K(s) = KL(s \,\|\, \text{uniform})$ in nats stands beside it: near 0 means no preference.

**Expected layer** of cumulative probes. $P^{(l)}$ sees layers 0 to l, and
$\Delta^{(l)} = \mathrm{Score}(P^{(l)}) - \mathrm{Score}(P^{(l-1)})$ is what layer l adds:

$$E_\Delta = \frac{\sum_{l=1}^{L} l\, \Delta^{(l)}}{\sum_{l=1}^{L} \Delta^{(l)}}$$

Where scores fall with l it may lie outside 1 to L, and where no layer adds anything it is divided
by nearly 0: read the curve first. Of a single example, ``first_layer`` is the first l at which its
label has the largest probability and keeps it to the last.

The controls of ``attnlab.lens.probes`` belong here too: the same probe on the states of an
untrained encoder, and on labels in a random order.

Tenney, Das, Pavlick. BERT Rediscovers the Classical NLP Pipeline. ACL 2019, arXiv:1905.05950,
section 3. Tenney et al. What Do You Learn from Context? ICLR 2019, arXiv:1905.06316, section 3.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.integers import check_integer

STEPS, RATE, RATE_OF_MIX, DECAY = 200, 1e-2, 1e-1, 1e-2
"""Of AdamW, each step over all examples; the few scores of the mix move faster, undecayed."""


class Examples(NamedTuple):
    """Questions about spans of the texts whose states are given."""

    text: Int[Tensor, "e"]
    """Which text."""
    spans: Int[Tensor, "e s 2"]
    """First place and the place after the last, of each of s = 1 or 2 spans."""
    label: Int[Tensor, "e"]
    """From 0."""


class ScalarMix(nn.Module):
    """The layers (layers, …) weighted by softmax(a) and scaled by gamma."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Float[Tensor, "layers"]:
        return self.scores.softmax(0)

    def forward(self, states: Float[Tensor, "layers b n d"]) -> Float[Tensor, "b n d"]:
        return self.gamma * torch.einsum("l,l...->...", self.shares, states)


class SpanPool(nn.Module):
    """A span becomes one vector: its projected tokens, weighted by a softmax of learned scores."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, inner)
        self.score = nn.Linear(inner, 1)

    def forward(
        self, mixed: Float[Tensor, "b n d"], text: Int[Tensor, "e"], span: Int[Tensor, "e 2"]
    ) -> Float[Tensor, "e inner"]:
        projected = self.project(mixed)
        places = torch.arange(mixed.shape[1], device=mixed.device)
        inside = (places >= span[:, :1]) & (places < span[:, 1:])
        weights = self.score(projected)[text, :, 0].masked_fill(~inside, -torch.inf).softmax(-1)
        return torch.einsum("en,end->ed", weights, projected[text])


class EdgeProbe(nn.Module):
    """Logits (e, labels) of questions about ``spans`` spans, from the states of ``layers`` layers
    of ``dim`` coordinates; ``inner`` is the width after the projection."""

    def __init__(self, layers: int, dim: int, labels: int, spans: int = 1, inner: int = 64) -> None:
        super().__init__()
        self.mix = ScalarMix(layers)
        self.pools = nn.ModuleList(SpanPool(dim, inner) for _ in range(spans))
        self.answer = nn.Sequential(
            nn.Linear(spans * inner, inner), nn.Tanh(), nn.Linear(inner, labels)
        )

    def forward(
        self, states: Float[Tensor, "layers b n d"], examples: Examples
    ) -> Float[Tensor, "e labels"]:
        mixed = self.mix(states)
        pooled = [
            pool(mixed, examples.text, examples.spans[:, one])
            for one, pool in enumerate(self.pools)
        ]
        return self.answer(torch.cat(pooled, dim=-1))


class EdgeProbed(NamedTuple):
    """What a trained probe answers to new examples, and which layers it reads."""

    right: float
    """The share of answers that are right."""
    chosen: Int[Tensor, "e"]
    shares: Float[Tensor, "layers"]

    @property
    def centre_of_gravity(self) -> float:
        """The mean layer of the mix."""
        return float(self.shares @ torch.arange(len(self.shares)).to(self.shares))

    @property
    def divergence(self) -> float:
        """K(s): how far the mix is from uniform, in nats; at most ln(layers)."""
        kept = torch.special.xlogy(self.shares, self.shares).sum()
        return float(kept) + float(torch.tensor(len(self.shares)).double().log())


class Cumulative(NamedTuple):
    """Probes of layers 0 to l, for each l."""

    right: Float[Tensor, "layers"]
    """The share of right answers of each."""
    first_layer: Int[Tensor, "e"]
    """Of each new example, the first l from which on all probes are right; ``layers`` if the last
    one is wrong."""
    last: EdgeProbed
    """The probe that reads all layers, with its mix."""

    @property
    def gains(self) -> Float[Tensor, "layers_less_one"]:
        """What each layer after the embedding adds."""
        return self.right.diff()

    @property
    def expected_layer(self) -> float:
        """NaN where the last probe is no better than that of the embedding alone."""
        gained = self.gains.sum()
        if gained <= 0:
            return float("nan")
        layers = torch.arange(1, len(self.right)).to(self.gains)
        return float(layers @ self.gains / gained)


def cropped(
    states: Float[Tensor, "layers b n d"], examples: Examples
) -> tuple[Float[Tensor, "layers e w d"], Examples]:
    """The same examples with a text of its own for each, which holds the tokens of its spans alone:
    a probe reads no others. Behind a span shorter than the longest stand tokens that follow it."""
    parts, spans, room = list[Tensor](), list[Tensor](), 0
    for span in examples.spans.unbind(1):
        begin, end = span.unbind(-1)
        wide = int((end - begin).max())
        places = (begin[:, None] + torch.arange(wide).to(begin)).clamp(max=states.shape[2] - 1)
        parts.append(states[:, examples.text[:, None], places])
        spans.append(torch.stack([torch.full_like(begin, room), room + end - begin], -1))
        room += wide
    text = torch.arange(len(examples.text)).to(examples.text)
    return torch.cat(parts, 2), Examples(text, torch.stack(spans, 1), examples.label)


def edge_probe(
    states: Float[Tensor, "layers b n d"], examples: Examples,
    new: Float[Tensor, "layers c n d"], asked: Examples,
    *, steps: int = STEPS, seed: int = 0,
) -> EdgeProbed:  # fmt: skip
    """A probe trained on ``examples`` about ``states``, asked about new states.

    States are those of ``attnlab.lens.probes.layer_states``; each coordinate of each layer is
    given mean 0 and variance 1, as measured on ``states``. ``seed`` draws the probe's weights.
    """
    _check_all(states, examples, new, asked, steps)
    return _probed(*_prepared(states, examples, new, asked), steps=steps, seed=seed)


def _check_all(
    states: Tensor, examples: Examples, new: Tensor, asked: Examples, steps: int
) -> None:
    check_integer("steps", steps, at_least=1)
    _check(states, examples, "examples")
    _check(new, asked, "asked")
    if len(states) != len(new):
        raise ValueError(
            f"states of {len(states)} layers are learned from and those of {len(new)} are asked"
        )
    if examples.spans.shape[1] != asked.spans.shape[1]:
        raise ValueError("examples and asked should have the same number of spans")
    _check_labels(examples.label, asked.label)


def _prepared(
    states: Tensor, examples: Examples, new: Tensor, asked: Examples
) -> tuple[Tensor, Examples, Tensor, Examples]:
    """The tokens of all spans, each coordinate of each layer with mean 0 and variance 1, as
    measured on ``states``, and the examples of them."""
    mean = states.mean((1, 2), keepdim=True)
    spread = states.std((1, 2), keepdim=True, correction=0).clamp(min=1e-6)
    known, learned = cropped(states, examples)
    fresh, questions = cropped(new, asked)
    return ((known - mean) / spread).detach(), learned, (fresh - mean) / spread, questions


def _probed(
    known: Tensor, learned: Examples, fresh: Tensor, asked: Examples, *, steps: int, seed: int
) -> EdgeProbed:
    """A probe of prepared states."""
    labels = len(learned.label.bincount())
    wanted = nn.functional.one_hot(learned.label, labels).to(known)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        probe = EdgeProbe(len(known), known.shape[-1], labels, learned.spans.shape[1])
        probe.to(known)
        others = [weight for name, weight in probe.named_parameters() if name != "mix.scores"]
        groups: list[dict[str, Any]] = [
            {"params": [probe.mix.scores], "lr": RATE_OF_MIX, "weight_decay": 0.0},
            {"params": others},
        ]
        adam = torch.optim.AdamW(groups, lr=RATE, weight_decay=DECAY)
        for _ in range(steps):
            logits = probe(known, learned)
            adam.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logits, wanted).backward()
            adam.step()
    with torch.no_grad():
        chosen = probe(fresh, asked).argmax(-1)
    right = float((chosen == asked.label).double().mean())
    return EdgeProbed(right, chosen, probe.mix.shares.detach().double())


def cumulative_probes(
    states: Float[Tensor, "layers b n d"], examples: Examples,
    new: Float[Tensor, "layers c n d"], asked: Examples,
    *, steps: int = STEPS, seed: int = 0,
) -> Cumulative:  # fmt: skip
    """One probe for the embedding alone, one for it and the first layer, and so on to all layers;
    arguments as those of ``edge_probe``."""
    _check_all(states, examples, new, asked, steps)
    known, learned, fresh, questions = _prepared(states, examples, new, asked)
    probes = [
        _probed(known[:upto], learned, fresh[:upto], questions, steps=steps, seed=seed)
        for upto in range(1, len(known) + 1)
    ]
    right = torch.tensor([probe.right for probe in probes], dtype=torch.float64)
    wrong = torch.stack([probe.chosen != asked.label for probe in probes])
    layers = torch.arange(1, len(wrong) + 1)[:, None]
    return Cumulative(right, (wrong * layers).amax(0), probes[-1])


def _check_labels(known: Tensor, asked: Tensor) -> None:
    counts = known.bincount()
    if len(counts) < 2 or int(counts.max()) == len(known):
        raise ValueError("all labels are equal, so there is nothing to be asked")
    if not counts.min():
        missing = (counts == 0).nonzero()[:, 0].tolist()
        raise ValueError(
            f"{len(known)} examples of the labels 0 to {len(counts) - 1} hold none of "
            f"{', '.join(map(str, missing[:5]))}: a probe needs an example of each label; give "
            "more examples, or number the labels that there are from 0"
        )
    if asked.max() >= len(counts):
        raise ValueError(
            f"asked has the label {int(asked.max())}, and the examples know 0 to {len(counts) - 1}"
        )


def _check(states: Tensor, examples: Examples, name: str) -> None:
    _, b, n, _ = states.shape
    if not b or not n:
        raise ValueError(
            f"the states of {name} are of {b} texts with {n} tokens: there are no words to be "
            "asked about"
        )
    text, spans, label = examples
    if not len(text) or not len(text) == len(spans) == len(label):
        raise ValueError(
            f"{name} should have as many texts as spans and labels, at least one, got "
            f"{len(text)}, {len(spans)} and {len(label)}"
        )
    if spans.dim() != 3 or spans.shape[1] not in (1, 2) or spans.shape[2] != 2:
        raise ValueError(f"spans of {name} should be (e, 1 or 2, 2), got {tuple(spans.shape)}")
    if text.min() < 0 or text.max() >= b or label.min() < 0:
        raise ValueError(f"texts of {name} should be from 0 to {b - 1}, labels from 0 on")
    begin, end = spans.unbind(-1)
    if begin.min() < 0 or end.max() > n or (begin >= end).any():
        raise ValueError(
            f"spans of {name} should have a token at least and lie in places 0 to {n - 1}"
        )
