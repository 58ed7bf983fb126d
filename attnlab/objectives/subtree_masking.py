r"""Subtree masking: whole constituents of a sentence are hidden, and the words around them answer.

A sentence comes with its tree. Its words are the leaves, and each node is a constituent, such as a
noun phrase. The leaves below node t are $L_t$. Nodes are drawn in a random order, and each is
hidden with all that is below it while the hidden leaves are at most a share $\rho$ of all n:

$$M = \bigcup_{t \in T} L_t,\qquad |M| \le \rho\, n,\qquad
  \ell = -\sum_{i \in M} \log p(x_i \mid \hat{x})$$

$T$ are the nodes that were taken, and $\hat{x}$ is the tree with one mask at each hidden token.
With $\rho = 0.3$ the first of these can happen, and the second cannot:

    (S (NP the dog) (VP sees (NP the old cat)))
    (S (NP the dog) (VP sees (NP ·   ·   · )))
    (S (NP the dog) (VP ·    (NP ·   old cat)))

A masked language model hides single words, most of which their neighbours tell: after "the old" the
next word is a noun. Of a hidden constituent no word is left, so the model has to know what kind of
phrase fits here. The label of a hidden node, such as NP, would say it; so it is hidden, too. It can
be shown (``labels="shown"``), or asked as well (``labels="asked"``).

Nodes of one leaf are single words, which ``smallest=1`` allows. Larger ones fit less often: of a
random order most that is taken is small. Where no node fits, nothing of a sentence is asked.

A model with tree attention is told the tree, which keeps its shape: it counts the words that are
missing. Any other reads leaves and nodes as a row of tokens. Under tree attention a leaf attends to
leaves alone and a node to its own subtree. So hidden labels change no answer at a leaf, and a
hidden label is not told by its surroundings: "asked" is for other encoders.

``naive``       row by row, node by node.
``vectorised``  all rows at once; one step for each node that may be taken.

Common mistakes: words counted one by one, so that half a phrase is hidden; the words of a nested
phrase counted twice; the labels below a hidden node left as they are.

Departures.
- the objective is ours. What the paper calls subtree masking is the mask of its attention, by which
  a node attends to its own subtree; that is in ``attnlab.mechanisms.structure.tree``. It is at
  times listed among training objectives, and this page builds what such a list would mean
- a hidden token is always a mask, and the rate of 30 % is ours. SpanBERT, the nearest of what is
  published, tried noun phrases as well, and kept spans of random lengths

Nguyen, Joty, Hoi, Socher. Tree-Structured Attention with Hierarchical Accumulation. ICLR 2020,
arXiv:2002.08046, equation 11. Joshi, Chen, Liu, Weld, Zettlemoyer, Levy. SpanBERT. TACL 2020,
arXiv:1907.10529, section 3.1.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share, takes_structure
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, uniform
from attnlab.structures.tree_batch import TreeBatch

# ---- options


@dataclass(frozen=True, kw_only=True)
class SubtreeMaskingOptions(Options):
    """What is hidden.

    rate: the largest share of the leaves of a tree that is hidden.
    smallest: the fewest leaves of a subtree that is hidden; 1 allows single leaves.
    labels: those of hidden nodes are "hidden" as well, "shown", or "asked" as the leaves are.
    """

    rate: float = 0.3
    smallest: Size = 2
    labels: Literal["hidden", "shown", "asked"] = "hidden"

    def check(self) -> None:
        check_share("rate", self.rate)

    def budget(self, leaves: Tensor) -> Tensor:
        """The most of so many leaves that are hidden: rounded down."""
        return (leaves * self.rate + 1e-9).floor().long()


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SubtreeMaskingOptions = SubtreeMaskingOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_i | x̂) over the leaves of the hidden subtrees, chosen row by row."""
    tree, order = tree_of(batch), uniform(batch.inputs.shape, generator)
    hidden = torch.zeros_like(batch.inputs, dtype=torch.bool)
    for row in range(len(batch)):
        children, leaves = tree.children(row), set[int]()
        below = dict[int, set[int]]()
        for token, own in children.items():  # children before parents
            below[token] = {token}.union(*(below[child] for child in own))
        leaf = {token for token, own in children.items() if not own}
        budget = int(options.budget(torch.tensor(len(leaf))))
        for token in sorted(children, key=order[row].__getitem__):
            wanted = below[token] & leaf
            if len(wanted) >= options.smallest and len(leaves | wanted) <= budget:
                leaves |= wanted
                hidden[row, [*below[token]]] = True
    asked = masked(batch, hidden, tree, vocab, options)
    return one_by_one(logits_of(model, _as_read(model, asked)), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SubtreeMaskingOptions = SubtreeMaskingOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Chooses the subtrees of all rows at once."""
    return SubtreeMasking(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def tree_of(batch: Batch) -> TreeBatch:
    """The trees of a batch; a ValueError for one that has none."""
    tree = getattr(batch, "structure", None)
    if not isinstance(tree, TreeBatch):
        came = "no structure" if tree is None else f"a {type(tree).__name__}"
        raise ValueError(
            "subtree_masking hides constituents, so each row of the task should have its tree, and "
            f"this batch has {came}; take a task in the form of trees, such as "
            "task('agreement', form='tree')"
        )
    return tree


def subtrees(
    tree: TreeBatch, order: Float[Tensor, "b n"], options: SubtreeMaskingOptions
) -> Bool[Tensor, "b n"]:
    """True at the tokens of the nodes that are taken, the lowest of ``order`` first."""
    budget = options.budget(tree.is_leaf.sum(-1))
    leaves = tree.stop - tree.start
    fits = tree.padding & (leaves >= options.smallest) & (leaves <= budget[:, None])
    turns = order.masked_fill(~fits, torch.inf).argsort(-1)
    place = torch.arange(tree.leaves.shape[1])
    gone = torch.zeros_like(tree.leaves, dtype=torch.bool)
    taken = torch.zeros_like(fits)
    for step in range(max(fits.sum(-1).tolist(), default=0)):
        turn = turns[:, step : step + 1]
        own = (tree.start.gather(1, turn) <= place) & (place < tree.stop.gather(1, turn))
        own &= fits.gather(1, turn)
        within = (gone | own).sum(-1, keepdim=True) <= budget[:, None]
        gone |= own & within
        taken.scatter_(1, turn, within & fits.gather(1, turn))
    return (tree.below & taken[:, :, None]).any(1)


def masked(
    batch: Batch, hidden: Bool[Tensor, "b n"], tree: TreeBatch, vocab: int,
    options: SubtreeMaskingOptions,
) -> Batch:  # fmt: skip
    """The batch with masks at the hidden tokens, and as targets what they were."""
    leaf = tree.is_leaf
    unseen = hidden & leaf if options.labels == "shown" else hidden
    scored = hidden if options.labels == "asked" else hidden & leaf
    return replace(
        batch,  # type: ignore[type-var]
        inputs=batch.inputs.masked_fill(unseen, vocab),
        targets=batch.inputs.masked_fill(~scored, UNSCORED),
    )


def _as_read(model: Any, batch: Batch) -> Batch:
    """The batch without its trees for a model that is told none."""
    told = getattr(model, "reads_structure", None)
    if takes_structure(model) if told is None else told:
        return batch
    return replace(batch, structure=None)  # type: ignore[type-var]


# ---- module


class SubtreeMasking(CrossEntropy):
    """Hides whole constituents of each tree.

    vocab: how many tokens leaves and nodes have. The mask is the token after them, so the model
        needs one more.
    """

    models = ("token_classifier",)
    specials = 1

    def __init__(
        self, vocab: Size, options: SubtreeMaskingOptions = SubtreeMaskingOptions()
    ) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with hidden subtrees; notes ``hidden``, their leaves and nodes, and ``scored``,
        each (b, n)."""
        check_tokens("subtree_masking", batch, self.vocab)
        tree = TreeBatch.fitting(tree_of(batch), batch.inputs[..., None], batch.padding)
        hidden = subtrees(tree, uniform(batch.inputs.shape, generator), self.options)
        asked = masked(batch, note("hidden", hidden), tree, self.vocab, self.options)
        note("scored", asked.targets != UNSCORED)
        return asked

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's logits; a model that is told structures is told the trees."""
        return logits_of(model, _as_read(model, batch))


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="subtree_masking",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.15 * n,
        hidden="up to 30 % of the leaves, in whole constituents, and the labels of these",
        models=SubtreeMasking.models,
    ),
    options=SubtreeMaskingOptions,
    structure=TreeBatch,
    build=SubtreeMasking,
    variants=(
        {"rate": 0.6, "smallest": 1},
        {"rate": 0.5, "smallest": 3, "labels": "shown"},
        {"labels": "asked"},
    ),
    aliases=("constituent_masking",),
    demo="""
    >>> problem = attnlab.tasks.task("agreement", form="tree")
    >>> batch = problem.batch("train", 1, 1)
    >>> objective = attnlab.build("subtree_masking", vocab=problem.vocab)
    >>> asked = objective.prepare(batch, torch.Generator().manual_seed(0))
    >>> def words(tokens):
    ...     return " ".join("·" if x == problem.vocab else problem.tokens([x])[0] for x in tokens)
    >>> words(batch.inputs[0, :12].tolist())  # the leaves; nodes follow
    'the small queens that sleep with every box behind my geese ?'
    >>> words(asked.inputs[0, :12].tolist())
    'the small queens that sleep with every box · · · ?'
    """,
)
