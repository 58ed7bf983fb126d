r"""Tree positions: a token is told the way to it from the root.

In a sequence a position is a number; in a tree it is a path: from the root take the second child,
then the first, and so on. The path is written into the vector of a token as a stack. One step to
the child of rank r pushes the one-hot vector $e_r$ of width c, and what was there moves down by c
places; what leaves the lowest of the s steps is forgotten. The root has the empty stack, zeros. Of
a token whose last steps were $r_1$ (to itself), $r_2$ (to its parent), …

$$P_p = \sqrt{1 - p^2}\,\sqrt{\tfrac{\mathrm{dim}}{2}}\; [\,e_{r_1},\; p\, e_{r_2},\; p^2 e_{r_3},\;
\dots,\; p^{s-1} e_{r_s}],\qquad x \leftarrow x + [P_{p_1}, P_{p_2}, \dots, 0]$$

Each $p_i$ is the tanh of a learned number: a small one keeps the last steps, one near 1 the whole
path. There are as many as fit, ⌊dim / (c s)⌋. One linear map leads from the stack of every token to
that of its parent, as one rotation leads from every sinusoidal position to the next: it moves the
stack up by c places.

Cost: ``gathered`` writes $9 n$ dim numbers and ``naive`` $5 n$ dim, at any depth: a stack has s
steps, whether the tree is deep or not.

``naive``     the definition: from each token up to the root.
``gathered``  all tokens together, one step after the other.

The paper's letters: our c (branches) and s (steps) are its n and k.

Readings. Children beyond the c-th share the last one's place; the paper writes such trees as binary
ones instead. The paper's positions are those of a decoder that writes the tree, too; here a tree is
read.

Departures.
- children beyond the last branch share its place

Shiv, Quirk. Novel Positional Encodings to Enable Tree-Based Transformers. NeurIPS 2019, section 3.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.shapes import Tokens, checked
from attnlab.structures.tree_batch import NONE, TreeBatch


@dataclass(frozen=True, kw_only=True)
class TreePositionOptions(Options):
    """How many children are told apart at each step (c), and how many steps are kept (s): as many
    as fit into dim, unless given."""

    branches: Size = 4
    steps: Size | None = None

    def kept(self, dim: int) -> int:
        """How many steps are kept in vectors of width ``dim``."""
        return self.steps or dim // self.branches


Decays = Float[Tensor, "p"]  # any numbers, of which p is the tanh

# ---- naive


@form
def naive(
    x: Tokens, decays: Decays, *, structure: TreeBatch, options: TreePositionOptions
) -> Tokens:
    """Each token with its own path added (section 3)."""
    structure.check_fits(x.shape[0], x.shape[1], x.device)
    ranks, parents = structure.rank.tolist(), structure.parents.tolist()
    steps = options.kept(x.shape[2])
    stacks = x.new_zeros(*x.shape[:2], steps, options.branches)
    for row, token in structure.padding.nonzero().tolist():
        at, step = token, 0
        while parents[row][at] != NONE and step < steps:
            stacks[row, token, step, min(ranks[row][at], options.branches - 1)] = 1
            at, step = parents[row][at], step + 1
    return _added(x, stacks, decays)


def _added(x: Tensor, stacks: Tensor, decays: Tensor) -> Tensor:
    """x plus the stacks (b, n, s, c) under every decay, side by side."""
    p = decays.tanh()[:, None]
    powers = p ** torch.arange(stacks.shape[2], device=x.device) * (1 - p**2).sqrt()
    encoded = (stacks[:, :, None] * powers[..., None]).flatten(2) * (x.shape[2] / 2) ** 0.5
    rest = x.shape[2] - encoded.shape[2]
    return x + nn.functional.pad(encoded, (0, rest))


# ---- gathered


@form
def gathered(
    x: Tokens, decays: Decays, *, structure: TreeBatch, options: TreePositionOptions
) -> Tokens:
    """``naive``, one step of all paths at once."""
    structure.check_fits(x.shape[0], x.shape[1], x.device)
    ranks, at, steps = structure.rank.clamp(max=options.branches - 1), None, []
    branches = torch.arange(options.branches, device=x.device)
    for _ in range(options.kept(x.shape[2])):
        if at is None:
            at = torch.arange(x.shape[1], device=x.device).expand_as(ranks)
        parents = structure.parents.gather(1, at.clamp(min=0)).where(at != NONE, NONE)
        rank = ranks.gather(1, at.clamp(min=0)).where(parents != NONE, NONE)
        steps.append((rank[..., None] == branches).to(x.dtype))
        at = parents
    return _added(x, torch.stack(steps, 2), decays)


FORMS = {"naive": naive, "gathered": gathered}

# ---- module


class TreePositions(Layer):
    """Adds to each vector (b, n, dim) the path to its token."""

    @checked
    def __init__(self, dim: Size, options: TreePositionOptions | None = None) -> None:
        super().__init__()
        self.dim, self.options = dim, TreePositionOptions() if options is None else options
        steps, branches = self.options.kept(dim), self.options.branches
        if not 0 < steps * branches <= dim:
            raise ValueError(
                f"a stack of {max(steps, 1)} steps among {branches} branches is wider than "
                f"dim={dim}; choose fewer steps or branches"
            )
        count = dim // (steps * branches)
        self.decays = nn.Parameter(torch.empty(count).uniform_(0.7, 0.999).atanh())

    @checked
    def forward(self, x: Tokens, *, structure: TreeBatch | None = None) -> Tokens:
        """The vectors of the tokens of trees, with their paths."""
        if x.shape[-1] != self.dim:
            raise ValueError(f"x should be vectors of width dim={self.dim}, got {x.shape[-1]}")
        structure = TreeBatch.fitting(structure, x, None)
        return gathered(x, self.decays, structure=structure, options=self.options)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="tree_positions",
    family="positions",
    role="embed",
    forms=FORMS,
    options=TreePositionOptions,
    structure=TreeBatch,
    causal="optional",
    time={"naive": 5 * n * dim, "gathered": 9 * n * dim},
    memory=n * dim,
    variants=({"branches": 2, "steps": 3},),
    build=TreePositions,
)
