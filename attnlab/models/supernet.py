"""A supernet: one set of matrices, of which smaller networks use the first rows and columns.

Hardware-aware transformers are searched in it: the supernet is trained once, in each step as
another sub-network drawn at random, and afterwards every sub-network is scored with the weights
that it inherits, without training. A sub-network has for each matrix of the supernet

    W[:out, :in]   and   b[:out]

and the first layers where it has fewer. Its sizes are the width of the stream, the number of
layers, and of each layer the width of the feed-forward layer and the number of heads. Queries, keys
and values are as wide in all sub-networks: fewer heads are wider heads over the same columns. The
largest sub-network is the supernet itself. What a sub-network does not use has no influence on it,
and no gradient from it.

Common mistakes: to read the inherited scores as those of trained networks (they are meant to rank
them); a sub-network's own layer norms (they too are the first entries of the shared ones).

Each layer of a decoder may also choose how many of the last encoder layers it reads
(``Space(source=(1, 2, 3))``, ``models.several_layers``). The search has a limit of cost: counted
operations, or the latency that ``models.latency`` predicts.

Wang, Wu, Liu, Cai, Zhu, Gan, Han. HAT: Hardware-Aware Transformers for Efficient Natural Language
Processing. ACL 2020, arXiv:2005.14187, section 3. Departures: an encoder and its decoder have the
same sizes, where HAT chooses those of each; the heads of cross-attention are not chosen.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnlab.core.heads import Heads
from attnlab.core.integers import check_integer
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models import parts
from attnlab.models.layers import Stack
from attnlab.models.options import Options
from attnlab.models.several_layers import read_several
from attnlab.models.tiny import TinyTransformer

DECIDED = frozenset({"dim", "layers", "heads", "hidden", "attention", "attention_options"})


@dataclass(frozen=True)
class Sizes:
    """The sizes of one sub-network; ``hidden`` and ``heads`` have a number for each layer, and so
    has ``source``: how many of the last encoder layers the decoder layer reads, 1 if not given."""

    dim: int
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    source: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", self.source or (1,) * len(self.hidden))

    @property
    def layers(self) -> int:
        return len(self.hidden)


@dataclass(frozen=True, kw_only=True)
class Space:
    """The sizes that sub-networks can have: each a choice of these, in each layer anew.

    source: of an encoder-decoder, how many of the last encoder layers a decoder layer may read.
    """

    dim: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    layers: tuple[int, ...]
    source: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in ("dim", "hidden", "heads", "layers", "source"):
            choices = getattr(self, name)
            if not isinstance(choices, tuple | list) or not choices:
                raise ValueError(f"{name} should be the sizes to choose from, got {choices!r}")
            checked = {check_integer(f"each of {name}", size, at_least=1) for size in choices}
            object.__setattr__(self, name, tuple(sorted(checked)))
        for heads in self.heads:
            if self.inner % heads:
                raise ValueError(
                    f"heads should divide the width of queries, keys and values, {self.inner} (the "
                    f"largest dim), got {heads}"
                )
        if max(self.source) > min(self.layers):
            raise ValueError(
                f"source should be at most {min(self.layers)}, the fewest layers of an encoder, "
                f"got {max(self.source)}"
            )

    @property
    def inner(self) -> int:
        """The width of queries, keys and values, that of the largest stream."""
        return max(self.dim)

    @property
    def largest(self) -> Sizes:
        layers = max(self.layers)
        hidden, heads, source = (
            (max(of),) * layers for of in (self.hidden, self.heads, self.source)
        )
        return Sizes(max(self.dim), hidden, heads, source)

    def __iter__(self) -> Iterator[Sizes]:
        """All of them."""
        for dim, layers in product(self.dim, self.layers):
            each = (product(of, repeat=layers) for of in (self.hidden, self.heads, self.source))
            for hidden, heads, source in product(*each):
                yield Sizes(dim, hidden, heads, source)

    def __len__(self) -> int:
        in_a_layer = len(self.hidden) * len(self.heads) * len(self.source)
        return len(self.dim) * sum(in_a_layer**layers for layers in self.layers)

    def __contains__(self, sizes: object) -> bool:
        return (
            isinstance(sizes, Sizes)
            and sizes.dim in self.dim
            and sizes.layers in self.layers
            and len(sizes.heads) == len(sizes.source) == sizes.layers
            and {*sizes.hidden} <= {*self.hidden}
            and {*sizes.heads} <= {*self.heads}
            and {*sizes.source} <= {*self.source}
        )

    def draw(self, random: Random) -> Sizes:
        """One at random: first the number of layers, then the sizes of each."""
        layers = random.choice(self.layers)
        dim = random.choice(self.dim)
        hidden = tuple(random.choice(self.hidden) for _ in range(layers))
        heads = tuple(random.choice(self.heads) for _ in range(layers))
        if len(self.source) == 1:  # no choice takes no random number: a seed draws what it drew
            return Sizes(dim, hidden, heads, self.source * layers)
        return Sizes(dim, hidden, heads, tuple(random.choice(self.source) for _ in range(layers)))


class Supernet(nn.Module):
    """The largest network of a space, which runs as any of them: ``supernet(x, sizes=…)``.

    Without ``sizes`` it draws some at random while it trains, and is the largest otherwise.
    ``options`` are those of a ``TinyTransformer``, sizes apart. The draws come from PyTorch's
    generator, which ``attnlab.train.fit`` seeds.
    """

    def __init__(self, space: Space, **options: Any) -> None:
        super().__init__()
        for name in DECIDED.intersection(options):
            raise ValueError(f"the space of a supernet decides {name}; leave it out")
        self.space, self.options = space, options
        self.largest = network(space, space.largest, **options)
        self._shapes: dict[Sizes, TinyTransformer] = {}

    def forward(
        self, tokens: Tensor, padding: Tensor | None = None, *, sizes: Sizes | None = None,
        **given: Any,
    ) -> Tensor:  # fmt: skip
        if sizes is None:
            sizes = self._drawn() if self.training else self.space.largest
        shape = self._shape(sizes).train(self.training)
        out: Tensor = functional_call(shape, self.corners(sizes), (tokens, padding), given)
        return out

    def _drawn(self) -> Sizes:
        return self.space.draw(Random(int(torch.randint(2**31, ()))))

    def corners(self, sizes: Sizes) -> dict[str, Tensor]:
        """The parameters of a sub-network: of each of the supernet's the first rows and columns."""
        whole = dict(self.largest.named_parameters())
        return {
            name: whole[name][tuple(slice(size) for size in small.shape)]
            for name, small in self._shape(sizes).named_parameters()
        }

    def inherited(self, sizes: Sizes) -> TinyTransformer:
        """A sub-network of its own, with a copy of what it inherits."""
        made = network(self.space, sizes, **self.options)
        home = next(self.parameters())
        made.to(home.device, home.dtype)
        with torch.no_grad():
            for name, corner in self.corners(sizes).items():
                made.get_parameter(name).copy_(corner)
        return made.train(self.training)

    def _shape(self, sizes: Sizes) -> TinyTransformer:
        """A network without numbers, kept outside of the modules of the supernet."""
        if sizes not in self._shapes:
            with torch.device("meta"):
                self._shapes[sizes] = network(self.space, sizes, **self.options)
        return self._shapes[sizes]


def network(space: Space, sizes: Sizes, **options: Any) -> TinyTransformer:
    """A network of these sizes with weights of its own."""
    if sizes not in space:
        raise ValueError(f"sizes should be of the space {space}, got {sizes}")
    attention = [partial(_attention, inner=space.inner, heads=each) for each in sizes.heads]
    made = TinyTransformer(
        dim=sizes.dim, layers=sizes.layers, heads=1, attention=attention, hidden=max(sizes.hidden),
        **options,
    )  # fmt: skip
    for stack in (part for part in made.children() if isinstance(part, Stack)):
        _set_hidden(stack, sizes.hidden, made.config, causal=stack is made.decoder)
    if max(space.source) > 1:
        if made.kind != "encoder_decoder":
            raise ValueError(
                f"source={space.source} is how many encoder layers a decoder reads, and "
                f"kind={made.kind!r} has no cross-attention; leave source out of the space"
            )
        read_several(made, sizes.source, max(space.source))
    return made


def _attention(dim: int, _: int, *, causal: bool, inner: int, heads: int) -> FullAttention:
    made = FullAttention(dim, 1, causal=causal)
    made.heads = Heads(dim, heads, head_dim=inner // heads)
    return made


def _set_hidden(
    stack: Stack, hidden: tuple[int, ...], config: Mapping[str, Any], *, causal: bool
) -> None:
    blocks: Any = stack.blocks
    branches = sum(len(block.sublayers()) for block in blocks)
    for block, width in zip(blocks, hidden, strict=True):
        block.feed_forward = parts.feed(Options(**{**config, "hidden": width}), causal)
        block.feed_forward_residual.initialise(block.feed_forward, branches)


# ---- search


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """How many sub-networks a generation has: the best of the last, their mutations, their
    children. HAT has 25, 50 and 50, mutates a size with probability 0.3, and takes 30 rounds."""

    parents: int = 25
    mutated: int = 50
    crossed: int = 50
    probability: float = 0.3
    rounds: int = 30

    def __post_init__(self) -> None:
        for name in ("parents", "rounds"):
            check_integer(name, getattr(self, name), at_least=1)
        for name in ("mutated", "crossed"):
            check_integer(name, getattr(self, name), at_least=0)
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability should be from 0 to 1, got {self.probability}")


def evolved(
    space: Space, score: Callable[[Sizes], float], *, cost: Callable[[Sizes], float],
    limit: float, seed: int = 0, evolution: Evolution | None = None, tries: int = 1000,
) -> Sizes:  # fmt: skip
    """The best sizes that evolution finds under a limit of cost. ``score`` is higher for better
    networks, and asked once for each; ``tries`` bounds the draws for one network that fits.

    A ValueError where no network drawn has a cost within the limit.
    """
    random, how = Random(seed), Evolution() if evolution is None else evolution
    scores: dict[Sizes, float] = {}

    def fitting(make: Callable[[], Sizes]) -> Sizes:
        for _ in range(tries):
            if cost(made := make()) <= limit:
                return made
        raise ValueError(
            f"no network among {tries} has a cost within limit={limit:,}; the largest costs "
            f"{cost(space.largest):,}: raise the limit, or add smaller sizes to the space"
        )

    def scored(sizes: Sizes) -> float:
        if sizes not in scores:
            scores[sizes] = score(sizes)
        return scores[sizes]

    drawn = partial(space.draw, random)
    population = [fitting(drawn) for _ in range(how.parents + how.mutated + how.crossed)]
    for _ in range(how.rounds):
        best = sorted(dict.fromkeys(population), key=scored, reverse=True)[: how.parents]
        mutated = [
            fitting(lambda: mixed(random.choice(best), drawn(), how.probability, random))  # noqa: B023
            for _ in range(how.mutated)
        ]
        crossed = [
            fitting(lambda: mixed(random.choice(best), random.choice(best), 0.5, random))  # noqa: B023
            for _ in range(how.crossed)
        ]
        population = [*best, *mutated, *crossed]
    return max(population, key=scored)


def mixed(one: Sizes, other: Sizes, share: float, random: Random) -> Sizes:
    """Each size is that of the other with probability ``share``; a layer that only one of them has
    is as there."""

    def choose(a: Any, b: Any) -> Any:
        return b if random.random() < share else a

    layers = choose(one.layers, other.layers)
    hidden, heads, source = (
        tuple(
            choose(a[i], b[i]) if i < min(len(a), len(b)) else max(a, b, key=len)[i]
            for i in range(layers)
        )
        for a, b in (
            (one.hidden, other.hidden), (one.heads, other.heads), (one.source, other.source),
        )
    )  # fmt: skip
    return Sizes(choose(one.dim, other.dim), hidden, heads, source)
