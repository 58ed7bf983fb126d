"""Signatures and docstrings → pages, read from the source."""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attnlab_widgets

import attnlab
from docs.places import ROOT, Sources, on_the_web

ROOMS = (
    "lens", "figures", "train", "tasks", "measure", "models", "parallel", "pretrained", "testing",
    "core",
)  # fmt: skip
_LABEL = re.compile(r"^(``[^`]+``(?:, ``[^`]+``)*)\s{2,}(\S.*)$")
Definition = ast.FunctionDef | ast.ClassDef


def write(sources: Sources) -> None:
    packages = (attnlab, attnlab_widgets)
    for package in packages:
        sources.write(f"reference/{package.__name__}.md", _front(package))
    for room in ROOMS:
        sources.write(f"reference/{room}.md", _room(room))
    names = [package.__name__ for package in packages]
    sources.write("reference/index.md", _index([*names, *ROOMS]))


def _index(made: list[str]) -> str:
    tree = "\n".join(made)
    return f"""---
description: All public names
---

# Reference

Names are imported from the module that defines them; `attnlab` and `attnlab_widgets` offer those
that one needs every day.

```{{toctree}}
:maxdepth: 1

{tree}
```
"""


def _front(package: ModuleType) -> str:
    """The names that a package itself offers."""
    name = package.__name__
    parts = [f"# {name}", markdown(inspect.getdoc(package) or "")]
    for offered in sorted(package.__all__, key=str.lower):
        home = sys.modules[getattr(package, offered).__module__]
        found = dict(_public(Path(inspect.getfile(home))))
        if offered in found:
            parts.append(f"## {offered}")
            parts.append(_entry(name, found[offered]))
    return _page(f"The names that {name} itself offers", parts)


def _room(room: str) -> str:
    parts = [f"# attnlab.{room}"]
    for file in sorted((ROOT / "attnlab" / room).rglob("*.py")):
        names = list(_public(file))
        if file.name == "__main__.py" or not names:
            continue
        path = file.relative_to(ROOT)
        dotted = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        parts.append(f"## {dotted}")
        said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        if said:
            parts.append(markdown(said))
        parts.append(f"[{path.as_posix()}]({on_the_web(path.as_posix())})")
        parts += [_entry(dotted, definition) for _, definition in names]
    return _page(f"Public names of attnlab.{room}", parts)


def _page(description: str, parts: list[str]) -> str:
    head = f"---\ndescription: {json.dumps(description)}\n---"
    return "\n\n".join((head, *parts)) + "\n"


def _public(file: Path) -> Iterator[tuple[str, Definition]]:
    """The functions and classes of a file that have a public name and a docstring."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if (
            isinstance(node, Definition)
            and not node.name.startswith("_")
            and ast.get_docstring(node)
        ):
            yield node.name, node


def _entry(module: str, node: Definition) -> str:
    """One function, or one class with its methods."""
    kind = "function" if isinstance(node, ast.FunctionDef) else "class"
    inside = [markdown(ast.get_docstring(node) or "")]
    if isinstance(node, ast.ClassDef):
        inside += [
            _directive(f"{method.name}{_signature(method, bound=True)}", method)
            for method in node.body
            if isinstance(method, ast.FunctionDef)
            and not method.name.startswith("_")
            and ast.get_docstring(method)
        ]
    head = f"{module}.{node.name}{_signature(node)}"
    body = "\n\n".join(inside)
    return f":::::{{py:{kind}}} {head}\n\n{body}\n:::::"


def _directive(head: str, method: ast.FunctionDef) -> str:
    kind = "property" if _is_property(method) else "method"
    return f"::::{{py:{kind}}} {head}\n\n{markdown(ast.get_docstring(method) or '')}\n::::"


def _is_property(method: ast.FunctionDef) -> bool:
    return any(ast.unparse(mark).endswith("property") for mark in method.decorator_list)


def _signature(node: Definition, *, bound: bool = False) -> str:
    """Its parameters with their defaults; of a class, those that it is made with."""
    if isinstance(node, ast.ClassDef):
        made = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return _signature(made[0], bound=True) if made else _fields(node)
    arguments = node.args
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ):
        argument.annotation = None
    static = any(ast.unparse(mark) == "staticmethod" for mark in node.decorator_list)
    if bound and arguments.args and not static:
        arguments.args = arguments.args[1:]
    if _is_property(node):
        return ""
    return f"({ast.unparse(arguments)})"


def _fields(node: ast.ClassDef) -> str:
    """The fields of a dataclass or a named tuple, as it is called with them."""
    given = [
        part.target.id + (f"={ast.unparse(part.value)}" if part.value else "")
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    return f"({', '.join(given)})" if given and _is_record(node) else ""


def _is_record(node: ast.ClassDef) -> bool:
    marks = " ".join(ast.unparse(part) for part in (*node.decorator_list, *node.bases))
    return "dataclass" in marks or "NamedTuple" in marks or "Options" in marks


def markdown(docstring: str) -> str:
    """A docstring as Markdown: it is nearly that; columns of labels become a list of terms."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", docstring))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if not _LABEL.match(lines[0]):
        return text
    terms: list[str] = []
    for line in lines:
        label = _LABEL.match(line)
        if label:
            terms.append(f"- {label[1]}: {label[2]}")
        elif line.startswith(" "):
            terms[-1] += f" {line.strip()}"
        else:
            terms.append(line)
    return "\n".join(terms)
