"""Costs as a reader sees them in a notebook, and what their letters stand for.

The HTML is made of tags (i, sup, sub) that an untrusted notebook, GitHub and VS Code keep, where
MathML is removed and TeX between dollars is not everywhere set.
"""

import functools
import inspect
import re
from collections.abc import Iterable
from typing import Any

import sympy

from attnlab.core import shapes
from attnlab.core.markup import escape

_TOKEN = re.compile(r"\*\*|\w+(?:\.\d+)?|\S|\s+")
_THIN = "\u202f"


def typeset(expression: sympy.Expr) -> str:
    """The expression as HTML: <i>h</i> <i>n</i><sup>2</sup> (<i>d</i> + <i>e</i>)."""
    return _set(_TOKEN.findall(str(expression)))


def _set(tokens: list[str]) -> str:
    parts: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token == "**":
            exponent, at = _operand(tokens, at + 1)
            parts.append(f"<sup>{_set(_unwrapped(exponent))}</sup>")
        elif token == "sqrt":
            inside, at = _operand(tokens, at + 1)
            parts.append("√" + _set(_unwrapped(inside) if len(inside) == 3 else inside))
        elif at + 1 < len(tokens) and tokens[at + 1] == "(" and token.isidentifier():
            parts.append(escape(token))
            at += 1
        else:
            parts.append(_THIN if token == "*" else symbol(token))
            at += 1
    return "".join(parts)


def _operand(tokens: list[str], at: int) -> tuple[list[str], int]:
    """The number, the letter or what is in brackets from there on, and where it ends."""
    if tokens[at] != "(":
        return [tokens[at]], at + 1
    depth, end = 0, at
    while True:
        depth += {"(": 1, ")": -1}.get(tokens[end], 0)
        end += 1
        if depth == 0:
            return tokens[at:end], end


def _unwrapped(tokens: list[str]) -> list[str]:
    return tokens[1:-1] if tokens[0] == "(" else tokens


def symbol(name: str) -> str:
    """A letter in italics, with its index; a word, such as dim, upright."""
    letter, _, index = name.partition("_")
    if not name.isidentifier():
        return escape(name)
    if not index:
        return f"<i>{escape(name)}</i>" if len(name) < 3 else escape(name)
    if len(letter) > 2:
        return escape(name)
    return f"<i>{escape(letter)}</i><sub>{escape(index)}</sub>"


@functools.cache
def house_letters() -> dict[str, str]:
    """The letters of all shapes and costs, as ``attnlab.core.shapes`` explains them."""
    rows = re.findall(r"^    (?=\w{1,3} {2,4}\w).*$", shapes.__doc__ or "", re.MULTILINE)
    pairs = [pair for row in rows for pair in re.findall(_ENTRY, row)]
    return {letter: " ".join(text.split()).rstrip(",") for letter, text in pairs}


_ENTRY = r"(?:^ {4}| {3,})(\w{1,3}) {2,4}(\w.*?)(?= {3,}|$)"


def of_option(options: type[Any], name: str) -> str:
    """What an option is, by the list in the docstring of its class: ``window``: half to each side.

    Its name alone where that docstring lists none.
    """
    text = inspect.cleandoc(options.__doc__ or "")
    found = re.search(rf"^``{name}`` {{2,}}(.*?)(?=\n``|\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return f"the option {name}"
    meaning = " ".join(found[1].replace("``", "").split()).rstrip(".")
    return f"{name}: {meaning}"


def letters_in(expressions: Iterable[sympy.Expr]) -> list[str]:
    """The letters of some expressions, those of the house first."""
    found = {letter.name for expression in expressions for letter in expression.free_symbols}
    known = [name for name in ("n", "m", "h", "d", "e", "dim") if name in found]
    return known + sorted(found - set(known), key=str.lower)


def in_plain_text(expression: sympy.Expr) -> str:
    """As one writes it without a typesetter: h n² (d + e)."""
    digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    text = re.sub(r"\*\*(\d+)", lambda power: power[1].translate(digits), str(expression))
    text = re.sub(r"sqrt\((\w+)\)", r"√\1", text).replace("sqrt(", "√(")
    return text.replace("**", "^").replace("*", " ")
