"""What the wall says of each mechanism: its card, costs at many lengths, equation and code."""

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sympy

from attnlab import catalog
from attnlab.catalog import module_of, pages
from attnlab.core.card import LIKE_N, Card, letters
from attnlab.core.options import annotations_of
from attnlab.core.typeset import in_plain_text
from attnlab.figures.mathml import tree
from attnlab.lens.side_by_side import Layer

MOST = 3  # lessons of one mechanism, those that name it most
FEW = (
    *("full", "longformer", "bigbird", "reformer", "linformer", "performer"),
    *("retention", "selective_scan"),
)  # to begin with: eight ways that differ at a glance
LARGE = 1 << 40  # a length at which the term that grows fastest is the largest
LESSONS = Path(catalog.__file__).parents[1] / "notebooks"


def described(layer: Layer, lengths: Sequence[int], dim: int, heads: int) -> dict[str, Any]:
    """All that the front end is told of a mechanism, its maps apart."""
    card = layer.card
    told = {
        "name": card.name,
        "title": card.title,
        "family": card.family,
        "year": card.paper.year,
        "causal": card.causal,
        "few": card.name in FEW,
        "because": card.causal_reason,
        "gives_up": card.gives_up,
        "options": ", ".join(f"{name}={value!r}" for name, value in layer.options.items()),
        "form": list(card.forms)[-1],
        "drawn": list(layer.drawn),
        "all_drawn": 0 < len(layer.drawn) == sum(1 for _ in layer.module.parameters()),
        "structure": example(card),
        "paper": str(card.paper),
        "short": card.paper.short,
        "url": card.paper.url,
        "equation": equation(card),
        "code": code_of(card),
        "page": pages().get(card.name, "").replace(".", "/"),
        "lessons": lessons(card),
    }
    for what in ("time", "memory"):
        told[what] = costs(card, what, layer.options, lengths, dim, heads)
        told[f"{what}_usual"] = costs(card, what, {}, lengths, dim, heads)
        told[f"{what}_order"] = growth(card, what, layer.options)
    return told


def code_of(card: Card) -> str:
    """The definition; "" where it was typed and its text is nowhere kept."""
    try:
        return inspect.getsource(inspect.unwrap(card.forms["naive"]))
    except OSError:
        return ""


def costs(
    card: Card, what: str, options: Mapping[str, Any], lengths: Sequence[int], dim: int, heads: int
) -> list[float]:
    """FLOPs, or the elements of the largest tensor, of the card's last form at each length, as its
    expression gives them."""
    chosen, claim = claim_of(card, what, options)
    known = {"h": heads, "d": dim // heads, "e": dim // heads, "dim": dim}
    known |= {letter: getattr(chosen, name) for letter, name in card.letters.items()}
    claim = claim.subs({x: known[x.name] for x in claim.free_symbols if x.name in known})
    at = sympy.lambdify(letters("n")[0], claim, "math")
    return [float(f"{float(at(length)):.4g}") for length in lengths]


def claim_of(card: Card, what: str, options: Mapping[str, Any]) -> tuple[Any, sympy.Expr]:
    """The options in force, and the cost of the last form under them, with `LIKE_N` as n."""
    own = {name: value for name, value in options.items() if name in annotations_of(card.options)}
    chosen = card.options(**own)
    (n,) = letters("n")
    cost = card.cost(what, list(card.forms)[-1], chosen)
    return chosen, cost.subs(dict.fromkeys(LIKE_N, n))


def growth(card: Card, what: str, options: Mapping[str, Any]) -> str:
    """How the cost grows in n alone, its other letters held: n, n², n log n."""
    n = letters("n")[0]
    terms = sympy.Add.make_args(sympy.expand(claim_of(card, what, options)[1]))
    orders = [term.as_independent(n)[1] for term in terms]
    return in_plain_text(max(orders, key=lambda order: float(order.subs(n, LARGE))))


def equation(card: Card) -> list[Any] | str:
    """The first displayed equation of the mechanism's page, as MathML; as LaTeX where it has a
    command that ``mathml`` does not know, and "" where there is none."""
    found = re.search(r"\$\$(.+?)\$\$", card.story or "", re.DOTALL)
    latex = " ".join(found[1].split()) if found else ""
    return tree(latex) or latex


def example(card: Card) -> str:
    """What a mechanism is told beside the sequence, as its structure describes an example."""
    said = inspect.getdoc(getattr(card.structure, "example", None)) or ""
    return " ".join(said.partition("\n\n")[0].split()).replace("`", "")


def lessons(card: Card) -> list[dict[str, str]]:
    """The lessons that import or build the mechanism in their code, or else that name it there;
    none where there are no notebooks."""
    module = module_of(card)
    package, _, last = module.rpartition(".")
    names = [f'"{name}"' for name in (card.name, *card.aliases)]
    signs = [rf"{module}\b", rf"from {package} import [^\n]*\b{last}\b"]
    signs += [rf"build\({one}" for one in names]
    words = (last, *names)
    best = _naming("|".join(signs), words) or _naming("|".join(names), words)
    return [{"path": path.name, "question": lesson["question"]} for path, lesson in best[:MOST]]


def _naming(pattern: str, words: tuple[str, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """The lessons whose code has the pattern, those that have it most often first. Each match has
    one of ``words``, for which a text is searched much faster."""
    counted = [
        (len(re.findall(pattern, code)), path, lesson)
        for path, lesson, code in _lessons()
        if any(word in code for word in words)
    ]
    best = sorted((one for one in counted if one[0]), key=lambda one: -one[0])
    return [(path, lesson) for _, path, lesson in best]


@cache
def _lessons() -> list[tuple[Path, dict[str, Any], str]]:
    found = []
    for path in sorted(LESSONS.glob("[0-9]*_*.ipynb")):
        book = json.loads(path.read_text(encoding="utf-8"))
        code = "\n".join(
            "".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"
        )
        found.append((path, book["metadata"].get("attnlab", {"question": path.stem}), code))
    return found
