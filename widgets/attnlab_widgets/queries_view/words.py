"""What is said of the queries; ``words.js`` says the same."""

from typing import Any

import numpy as np

from attnlab_widgets.queries_view.study import MASKED, STEPS, Study

MOST = 4  # readers of a patch that are named


def announcement(study: Study, moment: int, layer: int, head: int, query: int, patch: int) -> str:
    """What the chosen query attends to, and who reads the chosen patch."""
    codes = study.chosen(moment, layer, head)
    where = f"{when(study, moment)}{study.told()['layers'][layer]} ({of_heads(study, head)})"
    aside = int(study.set_aside(moment, layer, head)[query])
    said = [f"{where}: {of_query(study, codes, query, aside)}"]
    if patch >= 0:
        said.append(of_patch(study, codes, patch))
    return " ".join(said)


def when(study: Study, moment: int) -> str:
    if not study.dated:
        return "In "
    step = study.steps[moment]
    if step == 0:
        return "Before the first update, in "
    return f"After {step} update{'s' * (step != 1)}, in "


def of_heads(study: Study, head: int) -> str:
    if head >= 0:
        return f"head {head}"
    return "its only head" if study.heads == 1 else f"mean of {study.heads} heads"


def place(study: Study, patch: int) -> str:
    row, column = divmod(patch, study.grid[1])
    return f"row {row}, column {column}"


def weight(code: int) -> str:
    """With two digits after the point, of a smaller weight with its first two."""
    if code in (0, MASKED):
        return "0"
    value = (code / STEPS) ** 2
    return f"{value:.{max(2, 1 - int(f'{value:.1e}'.split('e')[1]))}f}"


def readers(codes: np.ndarray, patch: int) -> list[int]:
    """Queries by the weight that they give a patch, the largest first."""
    column = unmasked(codes[:, patch])
    return [int(query) for query in np.argsort(-column, kind="stable")]


def unmasked(codes: Any) -> np.ndarray:
    return np.where(np.asarray(codes) == MASKED, 0, codes).astype(np.int64)


def half(codes: np.ndarray) -> int:
    """How many patches, the largest first, hold half of what a query gives to patches."""
    squares = np.sort(unmasked(codes) ** 2)[::-1]
    return int((2 * squares.cumsum() < squares.sum()).sum()) + 1


def beside(study: Study, aside: int) -> str:
    """What a query gives to the keys before the patches."""
    which = "class token" if study.before == 1 else f"{study.before} tokens before them"
    return f"{weight(aside)} goes to the {which}"


def of_query(study: Study, codes: np.ndarray, query: int, aside: int) -> str:
    row = unmasked(codes[query])
    if row.max() == 0:
        rest = f"; {beside(study, aside)}" if study.before else ""
        return f"query {query} attends to no patch{rest}."
    best, few = int(row.argmax()), half(codes[query])
    hold = "holds" if few == 1 else "hold"
    whole = f"what it gives to patches; {beside(study, aside)}" if study.before else "its weight"
    return (
        f"query {query} attends most to the patch in {place(study, best)}, {weight(row[best])}; "
        f"{few} of {study.patches} patches {hold} half of {whole}."
    )


def of_patch(study: Study, codes: np.ndarray, patch: int) -> str:
    order = readers(codes, patch)
    listed = ", ".join(f"query {query} ({weight(codes[query, patch])})" for query in order[:MOST])
    return f"The patch in {place(study, patch)} is read by {listed}."
