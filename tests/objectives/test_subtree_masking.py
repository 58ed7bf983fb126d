"""Whole constituents that are hidden: which, how many leaves, and what is asked of them."""

import math

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.subtree_masking import SubtreeMaskingOptions, subtrees
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

# (S (NP the dog) (VP sees (NP the old cat))): leaves 0 to 5, nodes S 6, NP 7, VP 8, NP 9
THE, DOG, SEES, OLD, CAT, S, NP, VP = range(8)
TOKENS = torch.tensor([[THE, DOG, SEES, THE, OLD, CAT, S, NP, VP, NP]])
VOCAB, MASK = 8, 8
SENTENCE = Tree(
    "S",
    (
        Tree("NP", (Tree("the"), Tree("dog"))),
        Tree("VP", (Tree("sees"), Tree("NP", (Tree("the"), Tree("old"), Tree("cat"))))),
    ),
)
TREES = TreeBatch.of([SENTENCE])
LETTERS = {"the dog": {0, 1, 7}, "the old cat": {3, 4, 5, 9}, "VP": {2, 3, 4, 5, 8, 9}}
FORMS = [
    ("agreement", {}),
    ("listops", {"form": "tree"}),
    ("logic", {"form": "tree"}),
]


def hidden(first: list[int], **options) -> set[int]:
    """Where masks stand if the nodes are drawn in this order, then the others."""
    order = torch.tensor([[first.index(i) if i in first else 10.0 + i for i in range(10)]])
    found = subtrees(TREES, order.double(), SubtreeMaskingOptions(**options))
    return {*found[0].nonzero()[:, 0].tolist()}


def prepared(batch: Batch, vocab: int, seed: int = 0, **options):
    objective = attnlab.build("subtree_masking", vocab=vocab, **options)
    with record() as notes:
        asked = objective.prepare(batch, torch.Generator().manual_seed(seed))
    return asked, notes


def test_the_node_that_is_drawn_first_is_hidden_with_all_below_it() -> None:
    """Of six leaves half are three: one noun phrase or the other, not both and not the verb's."""
    assert hidden([9, 7, 8], rate=0.5) == LETTERS["the old cat"]
    assert hidden([7, 9, 8], rate=0.5) == LETTERS["the dog"]
    assert hidden([8, 6, 9, 7], rate=0.5) == LETTERS["the old cat"]


def test_a_nested_phrase_counts_once() -> None:
    """The verb phrase has four leaves, three of which are hidden already."""
    assert hidden([9, 8], rate=0.7) == LETTERS["VP"]
    assert hidden([7, 8, 9], rate=0.7) == LETTERS["the dog"]
    assert hidden([7, 8], rate=1.0) == {*range(10)}  # the root is among the others


def test_nothing_fits_and_single_leaves() -> None:
    assert hidden([9, 7, 8], rate=0.3) == set()  # one leaf of six
    assert hidden([2, 9, 7, 8], rate=0.3, smallest=1) == {2}
    assert hidden([9, 7], rate=0.5, smallest=3) == LETTERS["the old cat"]
    assert hidden([7], rate=0.0, smallest=1) == set()


def test_a_node_with_one_child_hides_what_its_child_hides() -> None:
    """(S (NP (N (A old) cats)) bark): of NP and N, which have the same leaves, NP is the upper."""
    tree = Tree(
        "S", (Tree("NP", (Tree("N", (Tree("old"), Tree("cats"))),)), Tree("bark"), Tree("."))
    )
    trees = TreeBatch.of([tree])  # leaves 0 to 3; S 4, NP 5, N 6
    for first, expected in ((5, {0, 1, 5, 6}), (6, {0, 1, 5, 6})):  # the other adds no leaf
        order = torch.full((1, 7), 5.0).double()
        order[0, first] = 0
        found = subtrees(trees, order, SubtreeMaskingOptions(rate=0.5))
        assert {*found[0].nonzero()[:, 0].tolist()} == expected
    assert not subtrees(trees, order, SubtreeMaskingOptions(rate=0.49)).any()


def test_the_loss_by_hand() -> None:
    """A model that answers each mask with the same shares: "the" 1/2, "old" 1/4, "cat" 1/8."""

    class Table(torch.nn.Module):
        def forward(self, tokens, padding=None):
            shares = torch.full((VOCAB + 1,), 1 / 48)
            shares[torch.tensor([THE, OLD, CAT])] = torch.tensor([1 / 2, 1 / 4, 1 / 8])
            answered = torch.where(tokens[..., None] == MASK, shares, torch.tensor(1 / 9))
            return answered.log()

    objective = attnlab.build("subtree_masking", vocab=VOCAB, rate=0.5, smallest=3)
    batch = Batch(TOKENS, TOKENS, structure=TREES)
    loss, count = objective(Table(), batch, torch.Generator().manual_seed(0))
    assert count == 3  # the old cat, the only one of three leaves
    assert loss.item() == pytest.approx((1 + 2 + 3) * math.log(2))


@pytest.mark.parametrize(("labels", "masks", "asked"), [
    ("hidden", {3, 4, 5, 9}, {3, 4, 5}), ("shown", {3, 4, 5}, {3, 4, 5}),
    ("asked", {3, 4, 5, 9}, {3, 4, 5, 9}),
])  # fmt: skip
def test_labels_of_hidden_nodes(labels, masks, asked) -> None:
    batch = Batch(TOKENS, TOKENS, structure=TREES)
    found, notes = prepared(batch, VOCAB, rate=0.5, smallest=3, labels=labels)
    assert {*(found.inputs[0] == MASK).nonzero()[:, 0].tolist()} == masks
    assert {*(found.targets[0] != UNSCORED).nonzero()[:, 0].tolist()} == asked
    assert found.targets[0, sorted(asked)].tolist() == TOKENS[0, sorted(asked)].tolist()
    assert torch.equal(notes.last("scored"), found.targets != UNSCORED)
    assert {*notes.last("hidden")[0].nonzero()[:, 0].tolist()} == LETTERS["the old cat"]


@pytest.mark.parametrize(("name", "options"), FORMS)
@pytest.mark.parametrize("smallest", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.4, 0.7, 1.0])
def test_whole_constituents_within_the_rate_and_never_padding(
    name, options, smallest, rate
) -> None:
    problem = task(name, **options)
    batch = problem.batch("train", 60, 2)
    _, notes = prepared(batch, problem.vocab, rate=rate, smallest=smallest)
    tree, gone = batch.structure, notes.last("hidden")
    assert not gone[~batch.padding].any()
    assert ((gone & tree.is_leaf).sum(-1) <= rate * tree.is_leaf.sum(-1) + 1e-6).all()
    if smallest == 1:  # a leaf fits as long as one is left
        assert ((gone & tree.is_leaf).sum(-1) + 1 > rate * tree.is_leaf.sum(-1)).all()
    for row in range(60):
        children = tree.children(row)
        for token, below in children.items():
            if gone[row, token]:  # and with it all that is below
                assert gone[row, below].all()
        tops = [t for t in children if gone[row, t] and not _within(tree, gone, row, t)]
        for top in tops:
            assert tree.stop[row, top] - tree.start[row, top] >= smallest
    assert gone.any()


def _within(tree, gone, row, token) -> bool:
    above = tree.parents[row, token]
    return above >= 0 and bool(gone[row, above])


def test_under_tree_attention_labels_change_no_answer_at_a_leaf() -> None:
    """A leaf attends to leaves alone."""
    problem = task("agreement", form="tree")
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(
        **model_options(problem, "subtree_masking"), attention="tree", dim=16, heads=2, layers=2
    ).eval()
    batch = problem.batch("train", 20, 0)
    found = []
    for labels in ("hidden", "shown"):
        objective = attnlab.build("subtree_masking", vocab=problem.vocab, labels=labels)
        asked = objective.prepare(batch, torch.Generator().manual_seed(0))
        found.append((asked.inputs, objective.answers(model, asked)))
    leaf = batch.structure.is_leaf
    assert (found[0][0] != found[1][0])[~leaf].any()
    torch.testing.assert_close(found[0][1][leaf], found[1][1][leaf])
    assert not torch.allclose(found[0][1][~leaf], found[1][1][~leaf])


@pytest.mark.parametrize(("form", "came"), [("words", "no structure"), ("graph", "a GraphBatch")])
def test_a_task_without_trees_is_refused(form, came) -> None:
    problem = task("agreement", form=form)
    with pytest.raises(ValueError, match=rf"row of the task should have its tree, .* has {came}"):
        prepared(problem.batch("train", 2, 0), problem.vocab)


def test_trees_of_other_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="the structure is that of 1 sequences of 10 tokens, but "):
        prepared(Batch(TOKENS[:, :7], TOKENS[:, :7], structure=TREES), VOCAB)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 1.2}, "rate should be a share"),
        ({"smallest": 0}, "smallest"),
        ({"labels": "none"}, "labels"),
    ],
)
def test_wrong_options(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        attnlab.build("subtree_masking", vocab=VOCAB, **options)


@pytest.mark.parametrize("attention", ["tree", "full"])
def test_fit_trains_an_encoder_by_it(attention) -> None:
    """Told the tree, or not."""
    problem = task("agreement", form="tree", most=0, words=10)
    options = model_options(problem, "subtree_masking")
    assert (options["kind"], options["vocab"]) == ("token_classifier", problem.vocab + 1)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**options, attention=attention, dim=16, heads=2, layers=1)
    before = evaluate(model, problem, objective="subtree_masking").loss
    fit(
        model, problem, 30, batch_size=16, learning_rate=1e-2, objective="subtree_masking",
        progress=False,
    )  # fmt: skip
    assert evaluate(model, problem, objective="subtree_masking").loss < 0.9 * before
