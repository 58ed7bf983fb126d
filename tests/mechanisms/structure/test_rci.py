"""Row-column intersection: who reads whom, and the scores of cells."""

import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.mechanisms.dense.full import naive as full
from attnlab.mechanisms.structure.rci import FORMS, RCIOptions, cell_scores, joined
from attnlab.structures.text_pairs import TextPairs

MODELS = ["interaction", "representation"]
PAIRS = TextPairs.of([3, 1, 2], [2, 5, 3], length=7)


def drawn() -> list[Tensor]:
    widths = (3, 3, 5)
    return [torch.randn(3, 2, 7, w, dtype=torch.float64).requires_grad_() for w in widths]


def by_loops(q: Tensor, k: Tensor, v: Tensor, model: str) -> Tensor:
    """From the lengths alone: of each pair (question, text)."""
    rows = []
    for row, (asked, text) in enumerate(((3, 2), (1, 5), (2, 3))):
        for head in range(2):
            for i in range(7):
                read = range(asked + text) if i < asked + text else range(0)
                if model == "representation":
                    read = [j for j in read if (j < asked) == (i < asked)]
                total, denominator = v[row, head, 0] * 0, 0.0
                for j in read:
                    power = (q[row, head, i] @ k[row, head, j] / math.sqrt(3)).exp()
                    total, denominator = total + power * v[row, head, j], denominator + power
                rows.append(total / denominator if read else total)
    return torch.stack(rows).view(3, 2, 7, 5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", FORMS)
def test_forms_are_the_equation(form: str, model: str) -> None:
    made = drawn()
    wanted = by_loops(*made, model)
    found = FORMS[form](*made, structure=PAIRS, options=RCIOptions(model=model))  # type: ignore[arg-type]
    torch.testing.assert_close(found, wanted)
    direction = torch.randn_like(wanted)
    pairs = (torch.autograd.grad((x * direction).sum(), made) for x in (found, wanted))
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_without_padding_interaction_is_full_attention(form: str) -> None:
    q, k, v = drawn()
    pairs = TextPairs.of([3, 1, 5], [4, 6, 2])
    torch.testing.assert_close(FORMS[form](q, k, v, structure=pairs), full(q, k, v))


@pytest.mark.parametrize("model", MODELS)
def test_what_reaches_the_text(model: str) -> None:
    """In the representation model nothing of the question, whatever the number of layers."""
    layer = attnlab.build("rci", dim=6, heads=2, model=model).double()
    x = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
    out = layer(layer(x, structure=PAIRS), structure=PAIRS)
    for of_text in (False, True):
        own = PAIRS.in_text if of_text else PAIRS.padding & ~PAIRS.in_text
        (gradient,) = torch.autograd.grad(out[own].sum(), x, retain_graph=True)
        reached = (gradient != 0).any(-1)
        assert torch.equal(reached, own if model == "representation" else PAIRS.padding)


def test_representation_is_two_layers_side_by_side() -> None:
    """One reads the questions alone, with its weights, and the other the texts."""
    layer = attnlab.build("rci", dim=6, heads=2, model="representation").double()
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    out = layer(x, structure=PAIRS)
    for row, (asked, text) in enumerate(((3, 2), (1, 5), (2, 3))):
        parts = (layer.heads, x[row, :asked]), (layer.text_heads, x[row, asked : asked + text])
        alone = [heads.merge(full(*heads.project(part[None])))[0] for heads, part in parts]
        torch.testing.assert_close(out[row, : asked + text], torch.cat(alone))


def test_scores_of_cells_are_sums() -> None:
    rows, columns = torch.randn(5, 3, 2).double(), torch.randn(5, 7, 2).double()
    wanted = torch.empty(5, 3, 7).double()
    by_logits = torch.empty(5, 3, 7).double()
    for b in range(5):
        for i in range(3):
            for j in range(7):
                odds = [(z[0] - z[1]).exp() for z in (rows[b, i], columns[b, j])]
                wanted[b, i, j] = -(1 + odds[0]).log() - (1 + odds[1]).log()
                by_logits[b, i, j] = rows[b, i, 1] + columns[b, j, 1]
    torch.testing.assert_close(cell_scores(rows, columns), wanted)
    torch.testing.assert_close(cell_scores(rows, columns, score="logit"), by_logits)


@pytest.mark.parametrize("score", ["probability", "logit"])
def test_the_best_cell_is_that_of_the_best_row_and_column(score: str) -> None:
    for _ in range(20):
        rows, columns = torch.randn(5, 2), torch.randn(3, 2)
        cells = cell_scores(rows, columns, score=score)  # type: ignore[arg-type]
        if score == "probability":
            rows, columns = rows.log_softmax(-1), columns.log_softmax(-1)
        best = rows[:, 1].argmax() * 3 + columns[:, 1].argmax()
        assert cells.flatten().argmax() == best


def test_the_two_scores_rank_cells_differently() -> None:
    """A logit of "no" that is large lowers the probability, and not the logit, of "yes"."""
    rows, columns = torch.tensor([[0.0, 1.0], [5.0, 2.0]]), torch.zeros(1, 2)
    assert cell_scores(rows, columns)[:, 0].argmax() == 0
    assert cell_scores(rows, columns, score="logit")[:, 0].argmax() == 1


def test_a_question_and_a_text_are_joined() -> None:
    a, b = torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0, -1.0]])
    assert joined(a, b).tolist() == [[2, 3, 5, -1, 10, -3, 9, 16]]


@pytest.mark.parametrize(
    ("rows", "columns", "options", "sentence"),
    [
        ((0, 2), (3, 2), {}, "`rows` .* r is 0"),
        ((3, 2), (0, 2), {}, "`columns` .* c is 0"),
        ((3, 1), (3, 1), {}, "hold two logits each, no and yes"),
        ((3, 2), (3, 1), {}, "two"),
        ((3, 2), (3, 2), {"score": "sum"}, "there is no score 'sum'"),
    ],
)
def test_scores_of_nothing_are_refused(rows, columns, options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        cell_scores(torch.randn(rows), torch.randn(columns), **options)
