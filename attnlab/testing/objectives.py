"""Claims of objectives, each asked of every page of the role.

A batch here has rows of tokens, padding at the end of some, and targets of which some are not
scored; the model is a table that answers each token with logits of its own.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.exits import Exits, asked
from attnlab.core.options import parameters_of
from attnlab.core.probe import note
from attnlab.models.options import CLASSIFIERS, KINDS
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.testing.mechanisms import Cases, named, variants
from attnlab.train.objective import check_kind

VOCAB, N, ROWS = 11, 13, 6
MANY = 40  # rows, where a share of them is asked for


def cases(of: Any) -> Cases:
    every = [card for card in catalog.shelf("objectives") if card.role == "objective"]
    return Cases(lambda card: of(card) if card.role == "objective" else [], every)


EACH = cases(lambda card: [named(card)])
FAST = cases(lambda card: [named(card, form) for form in list(card.forms)[1:]])


PAIRED = cases(lambda card: [named(card)] if card.claims.together else [])
APART = cases(lambda card: [] if card.claims.together else [named(card)])
TOKENS = cases(lambda card: [named(card)] if card.claims.uniform is None else [])


def built(card: Card, net: nn.Module | None = None, **options: Any) -> Any:
    """The objective; one that adds tokens of its own is told how many the text has, and one with a
    smaller model or a teacher is given a table. With a model it has all that it needs for it."""
    torch.manual_seed(5)
    own: dict[str, Any] = {"vocab": VOCAB} if "vocab" in card.option_names() else {}
    for name in {"small", "teacher"} & {*parameters_of(card.build)}:  # no temperature of a teacher
        table = torch.randn(VOCAB + 1, VOCAB, dtype=torch.float64)
        own[name] = Answering(table, for_rows=False)
    objective: Any = catalog.build(card.name, **own, **options)
    if net is not None:
        objective.fitted(net)
        objective.double()
    return objective


@dataclass(frozen=True)
class Text:
    """A batch of texts, as tasks give it."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_padding: Tensor | None = None
    structure: Any = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice) -> "Text":
        return Text(*(None if x is None else x[rows] for x in vars(self).values()))  # type: ignore[arg-type]

    def to(self, device: Any) -> "Text":
        return self


class Answering(nn.Module):
    """Logits that depend on the token at the position alone; their sum, if it answers for rows.
    The vectors of its encoder are the same, and so are the queries and keys of its one head."""

    def __init__(self, table: Tensor, *, for_rows: bool) -> None:
        super().__init__()
        self.table, self.for_rows = nn.Parameter(table), for_rows
        self.dim = table.shape[1]
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList([nn.Identity()])
        self.answered: list[Tensor] = []

    def encode(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        vectors: Tensor = self.encoder.blocks[0](self._kept(self.table[tokens]))  # type: ignore
        note("queries", vectors[:, None])
        note("keys", vectors[:, None])
        return vectors

    def decode(self, tokens: Tensor, *source: Any, structure: Any = None) -> Tensor:
        return self._kept(self.table[tokens])

    def _kept(self, logits: Tensor) -> Tensor:
        if logits.requires_grad:
            logits.retain_grad()
        self.answered.append(logits)
        return logits

    def forward(self, tokens: Tensor, padding: Tensor | None = None, **source: Any) -> Tensor:
        logits = self.table[tokens]
        logits = self._kept(logits.sum(1) if self.for_rows else logits)
        if (exits := asked()) is not None:  # it has one layer, after which every token leaves
            exits.append(Exits(logits[None]))
        return logits

    def logits(self, x: Tensor) -> Tensor:
        return x


def text(card: Card, rows: int = ROWS, width: int = N) -> Text:
    """Rows of as many texts as the objective compares, of the same width; or targets of few words,
    some of which follow their like, with sources of a few more."""
    torch.manual_seed(3)
    if card.claims.source:  # type: ignore[union-attr]
        return pairs(rows, max(1, width // 4))
    width += -width % card.claims.texts  # type: ignore[union-attr]
    tokens = torch.randint(1, VOCAB, (rows, width + 1))
    fewest = max(1, width - 2) if card.claims.texts > 1 else min(4, width)  # type: ignore[union-attr]
    padding = torch.arange(width) < torch.randint(fewest, width + 1, (rows, 1))
    targets = tokens[:, 1:].masked_fill(~padding, UNSCORED)
    targets[0] = UNSCORED  # a row in which nothing is scored
    padding[1] = False  # and one that is empty
    targets[1] = UNSCORED
    return Text(tokens[:, :-1], targets, padding, structure=structure(card, padding))


def structure(card: Card, padding: Tensor) -> Any:
    """An example of what connects the tokens, where the objective needs it."""
    return None if card.structure is None else card.structure.example(padding)


def pairs(rows: int, words: int) -> Text:
    """Targets of at most so many words, one row of which is empty, and sources of up to two more;
    there are all that a target needs at two places for each word of its source."""
    targets = torch.randint(1, 4, (rows, words + 1))
    real = torch.arange(words) < torch.randint(1, words + 1, (rows, 1))
    real[1] = False
    source = torch.randint(1, VOCAB, (rows, words + 2))
    source_real = torch.arange(words + 2) < words + torch.randint(3, (rows, 1))
    asked = targets[:, 1:].masked_fill(~real, UNSCORED)
    return Text(targets[:, :-1], asked, real, source, source_real)


def model(card: Card, *, uniform: bool = False, **options: Any) -> Answering:
    torch.manual_seed(4)
    objective = built(card, **options)
    size = VOCAB + objective.specials
    table = torch.randn(size, objective.classes or size, dtype=torch.float64)
    for_rows = objective.models == ("classifier",)
    return Answering(0 * table if uniform else table, for_rows=for_rows)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def summed(card: Card, net: Answering, batch: Text, seed: int = 0) -> tuple[Tensor, int]:
    found: tuple[Tensor, int] = built(card, net)(net, batch, draws(seed))
    return found


@pytest.mark.parametrize(("card", "form"), FAST)
def test_each_form_of_an_objective_equals_naive(card: Card, form: str) -> None:
    for variant in variants(card):
        found = []
        for each in ("naive", form):
            net = model(card, **variant)
            given = {"vocab": VOCAB, "objective": built(card, net, **variant), **variant}
            own = card.arguments(card.forms[each], given)
            loss, count = card.forms[each](net, text(card), draws(), **own)
            found.append((loss, torch.autograd.grad(loss, net.table)[0], count))
        torch.testing.assert_close(found[1][:2], found[0][:2])
        assert found[0][2] == found[1][2]


@pytest.mark.parametrize("card", EACH)
def test_positions_that_are_not_scored_get_no_gradient(card: Card) -> None:
    net = model(card)
    objective = built(card, net)
    batch: Any = objective.prepare(text(card), draws())
    answers = objective.answers(net, batch)
    objective.loss(answers, batch).backward()
    for logits in net.answered:
        unscored = batch.targets == UNSCORED
        for _ in range(card.claims.beside):  # type: ignore[union-attr]
            apart = nn.functional.pad(unscored, (1, 1), value=True)
            unscored = unscored & apart[:, :-2] & apart[:, 2:]
        assert unscored.any()
        if logits.shape[: unscored.dim()] != unscored.shape:  # vectors of texts, k of each row
            unscored = unscored.reshape(len(unscored), -1).all(1)
            unscored = unscored.repeat_interleave(len(logits) // len(unscored))
            if logits.grad is None:  # which only say what is asked
                continue
        assert (logits.grad[unscored] == 0).all()  # type: ignore[index]
        assert (logits.grad[~unscored] != 0).any()  # type: ignore[index]


@pytest.mark.parametrize("card", EACH)
def test_a_uniform_model_loses_the_logarithm_of_the_vocabulary(card: Card) -> None:
    net = model(card, uniform=True)
    objective = built(card, net)
    for parameter in objective.parameters():
        nn.init.zeros_(parameter)
    loss, count = objective(net, text(card), draws())
    assert count > 0
    V, r = letters("V r")
    targets = objective.prepare(text(card), draws()).targets
    rows = int((targets != UNSCORED).reshape(len(targets), -1).any(1).sum())
    claimed = card.claims.uniform  # type: ignore[union-attr]
    if callable(claimed) and not isinstance(claimed, sympy.Basic):
        expected = claimed(objective.prepare(text(card), draws()), net.table.shape[1])
    else:
        claimed = sympy.log(net.table.shape[1]) if claimed is None else sympy.sympify(claimed)
        expected = float(claimed.subs({V: VOCAB, r: rows}))
    assert loss.item() / count == pytest.approx(expected)


@pytest.mark.parametrize("card", PAIRED)
def test_rows_that_answer_each_other_do_not_add_up(card: Card) -> None:
    net = model(card)
    objective = built(card, net)
    batch: Any = objective.prepare(text(card), draws())
    every = (batch[:4], batch[4:], batch)
    parts = [float(objective.loss(objective.answers(net, x), x).detach()) for x in every]
    assert abs(parts[0] + parts[1] - parts[2]) > 1e-7


@pytest.mark.parametrize("card", APART)
def test_parts_of_a_batch_add_up(card: Card) -> None:
    net = model(card)
    objective = built(card, net)
    batch: Any = objective.prepare(text(card), draws())
    pieces = [batch[:1], batch[1:4], batch[4:]]
    losses = [objective.loss(objective.answers(net, piece), piece) for piece in pieces]
    whole, count = objective(net, text(card), draws())
    torch.testing.assert_close(sum(losses), whole)
    assert count == sum(int((piece.targets != UNSCORED).sum()) for piece in pieces)


@pytest.mark.parametrize("card", EACH)
def test_the_seed_alone_decides_what_is_hidden(card: Card) -> None:
    objective = built(card)
    found = []
    for noise in (1, 2):  # of the global generator, which is neither asked nor moved on
        given = text(card)
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        batch: Any = objective.prepare(given, draws())
        assert torch.equal(torch.get_rng_state(), before)
        found.append((batch.inputs, batch.targets, *getattr(batch, "kept", {}).values()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("card", EACH)
def test_as_many_targets_are_scored_as_claimed(card: Card) -> None:
    claims, batch = card.claims, text(card, MANY, 5 * N)
    assert isinstance(claims, Objective)
    assert batch.padding is not None
    s, n, b = letters("s n b")
    sizes = {s: int((batch.targets != UNSCORED).sum()), n: int(batch.padding.sum()), b: MANY}
    claimed = float(sympy.sympify(claims.scored).subs(sizes))
    assert summed(card, model(card), batch)[1] == pytest.approx(claimed, rel=0.2)


@pytest.mark.parametrize("card", EACH)
def test_where_nothing_is_scored_the_sum_is_zero(card: Card) -> None:
    """In a batch of padding alone, of which the task scores nothing."""
    given = text(card)
    padding = torch.zeros_like(given.inputs, dtype=torch.bool)
    unscored = torch.full_like(given.targets, UNSCORED)
    connected = structure(card, padding)
    nothing = Text(given.inputs, unscored, padding, given.source, given.source_padding, connected)
    loss, count = summed(card, model(card), nothing)
    assert loss.item() == 0
    assert count == 0


@pytest.mark.parametrize("card", TOKENS)
def test_rightly_answered_targets_are_counted(card: Card) -> None:
    """A model that is sure of the one right answer, of each target that it can know."""
    objective = built(card)
    batch: Any = objective.prepare(text(card), draws())
    sure = (
        nn.functional.one_hot(batch.targets.clamp(min=0), model(card).table.shape[1]).double() * 50
    )
    count = int((batch.targets != UNSCORED).sum())
    assert int(objective.right(sure, batch)) == count
    assert objective.loss(sure, batch).item() == pytest.approx(0, abs=1e-6)
    assert int(objective.right(-sure, batch)) < count


# ---- input that makes no sense, or nearly none


def tried(card: Card, batch: Text, **options: Any) -> tuple[Tensor, int] | str:
    """The loss and its count, or the sentence of a ValueError that refuses."""
    try:
        net = model(card, **options)
        found: tuple[Tensor, int] = built(card, net, **options)(net, batch, draws())
    except ValueError as error:
        return str(error)
    return found


def is_answered(found: tuple[Tensor, int] | str) -> bool:
    """Whether it is a number of which nothing is missing, or a sentence."""
    if isinstance(found, str):
        return len(found.split()) > 4
    loss, count = found
    return bool(loss.isfinite()) and count >= 0 and (count > 0 or loss.item() == 0)


def shares(card: Card) -> list[str]:
    """The options that are numbers from 0 to 1."""
    found = []
    for name, annotation in card.option_names().items():
        if "float" in str(annotation):
            try:
                built(card, None, **{name: 1.5})
            except ValueError as error:
                found += [name] * ("share" in str(error))
            except TypeError:
                continue
    return found


@pytest.mark.parametrize("card", EACH)
def test_shares_of_nothing_and_of_all(card: Card) -> None:
    for name in shares(card):
        for value in (0.0, 1.0):
            assert is_answered(tried(card, text(card), **{name: value})), (name, value)
        for value in (-0.1, 1.1, float("nan")):
            refused = tried(card, text(card), **{name: value})
            assert isinstance(refused, str), (name, value)
            assert name in refused


@pytest.mark.parametrize("card", EACH)
def test_texts_shorter_than_what_is_hidden(card: Card) -> None:
    """Texts of one token, of two, of three; and one text alone."""
    for width in (1, 2, 3):
        for rows in (1, ROWS):
            given = text(card, ROWS, max(width, card.claims.texts))[:rows]  # type: ignore[union-attr]
            assert is_answered(tried(card, given)), (width, rows)


@pytest.mark.parametrize("card", EACH)
def test_what_stands_at_padding_changes_nothing(card: Card) -> None:
    objective, given = built(card), text(card)
    assert given.padding is not None
    others = given.inputs.where(given.padding, (given.inputs + 5) % VOCAB)
    found = []
    for inputs in (given.inputs, others):
        changed = replace(given, inputs=inputs)
        asked: Any = objective.prepare(changed, draws())
        read = asked.inputs
        if asked.padding is not None:
            read = read.masked_fill(~asked.padding, 0)
        source = (
            None if asked.source is None else asked.source.masked_fill(~asked.source_padding, 0)
        )
        found.append((read, asked.targets, source))
    for one, other in zip(*found, strict=True):
        assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("card", EACH)
def test_tokens_that_the_text_does_not_have_are_refused(card: Card) -> None:
    if "vocab" not in card.option_names():
        pytest.skip("it is not told how many tokens there are; the model refuses them")
    for wrong in (VOCAB, -1):
        given = text(card)
        given.inputs[2, 0] = wrong
        with pytest.raises(ValueError, match=rf"vocab={VOCAB}, and a token of the task is {wrong}"):
            built(card).prepare(given, draws())


@pytest.mark.parametrize("card", EACH)
def test_a_model_of_another_kind_is_refused(card: Card) -> None:
    objective = built(card)
    for kind in KINDS:
        net = TinyTransformer(
            VOCAB, kind=kind, classes=3 if kind in CLASSIFIERS else None, dim=4, layers=1, heads=1
        )
        if kind in objective.models:
            check_kind(net, objective)
            continue
        with pytest.raises(ValueError, match=f"got a model of kind='{kind}'"):
            check_kind(net, objective)
