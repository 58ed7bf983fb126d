"""Errors speak with one voice, and a docstring begins with a sentence or says what is returned."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("attnlab", "widgets/attnlab_widgets", "tools")
VERDICTS = ROOT / "attnlab/exercises"
"""What an exercise says of an attempt is prose, of whole sentences."""

NO_SENTENCE = re.compile(
    r"(Of|That of|Those (of|that)) |The same([,:;.]| (as|by|for|from|in|of|on|over|where|with)\b)"
)


def faults(source: str, *, verdicts: bool = False) -> list[str]:
    """Line and fault of each error and each docstring of a file."""
    tree, found = ast.parse(source), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and not verdicts:
            found += [f"{node.lineno}: {fault}" for fault in _voice(_text(node))]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            said = ast.get_docstring(node)
            if said and NO_SENTENCE.match(said):
                found.append(f"{node.lineno}: no sentence: {said.splitlines()[0]}")
    return found


def _text(node: ast.Raise) -> str:
    """The literal parts of an error's first argument, … in the place of what is inserted."""
    call = node.exc
    return "".join(_parts(call.args[0])) if isinstance(call, ast.Call) and call.args else ""


def _parts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield part.value if isinstance(part, ast.Constant) else "…"
    elif isinstance(node, ast.BinOp):
        yield from _parts(node.left)
        yield from _parts(node.right)


def _voice(said: str) -> list[str]:
    """What is not "`x` should be …, got …", without a full stop."""
    return [
        f"{fault}: {said}"
        for fault, meets in (
            ("should, not must", re.search(r"\bmust\b", said)),
            ("a comma before got", "; got " in said),
            ("no full stop", said.endswith(".") and not said.endswith("..")),
        )
        if meets
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_one_voice(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for fault in faults(path.read_text(encoding="utf-8"), verdicts=VERDICTS in path.parents)
    ]
    assert not wrong, "\n".join(wrong)


def test_other_voices_are_heard() -> None:
    source = '''
def f(x):
    """Of x the largest."""
    if x:
        raise ValueError(f"x must be {x}; got " f"{x}.")
    raise ValueError("x should be 3, got 4")

def g():
    """The same, all at once."""

def h():
    """The same call in a fresh process."""
'''
    found = faults(source)
    assert [fault.split(":")[1] for fault in found] == [
        " no sentence", " no sentence", " should, not must", " a comma before got", " no full stop",
    ]  # fmt: skip
    assert len(faults(source, verdicts=True)) == 2
