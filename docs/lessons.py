"""A lesson → a page: its text, its code, and its outputs as they are stored."""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from attnlab.catalog import pages
from docs.outputs import Outputs
from docs.places import HOME, ROOT, Sources, address_of, fenced, html_block, on_the_web
from docs.widgets import Widgets
from tools.course.lesson import prediction
from tools.readme import Lesson, lessons, parts_of_the_course

_BADGE = re.compile(r"\[!\[([^\]]+)\]\([^)]*\)\]\(([^)\s]+)\)")
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")
NOTATION = "notation.md"  # the page that every lesson links, beside the lessons here as there


def write(sources: Sources) -> None:
    every = lessons(ROOT)
    homes = {module_path(module): name for name, module in pages().items()}
    for lesson in every:
        sources.write(f"lessons/{Path(lesson.path).stem}.md", _Page(lesson, sources, homes).text())
    sources.write(f"lessons/{NOTATION}", _notation())
    sources.write("lessons/index.md", _index(every))


def module_path(module: str) -> str:
    """The file or the folder of a module, in the repository."""
    path = module.replace(".", "/")
    return path if (ROOT / path).is_dir() else f"{path}.py"


def read(lesson: Lesson) -> Mapping[str, Any]:
    return json.loads((ROOT / lesson.path).read_text(encoding="utf-8"))


class _Page:
    def __init__(self, lesson: Lesson, sources: Sources, homes: Mapping[str, str]) -> None:
        self.lesson, self.sources, self.homes = lesson, sources, homes
        self.name = Path(lesson.path).stem
        self.book = read(lesson)
        widgets = Widgets(self.book["metadata"], self.name, sources.add)
        self.outputs = Outputs(self.name, widgets, sources.add)

    def text(self) -> str:
        about = f"Lesson {self.lesson.number:02}, {self.lesson.minutes} minutes"
        head = f"---\ndescription: {json.dumps(about)}\n---"
        return "\n\n".join((head, *self._cells())) + "\n"

    def _cells(self) -> Iterator[str]:
        for number, cell in enumerate(self.book["cells"]):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                yield self._markdown(source)
            elif cell["cell_type"] == "code":
                yield self._code(source, cell["metadata"])
                yield from self._stored(number, cell)

    def _markdown(self, source: str) -> str:
        source = _BADGE.sub(r"[\1](\2){.badge}", source)
        return _LINK.sub(lambda link: f"]({self._address(link[1])})", source)

    def _address(self, target: str) -> str:
        """The address of a lesson's or mechanism's page here, or else of the repository's file."""
        path, _, part = target.partition("#")
        if path == NOTATION:
            return target
        if path.endswith(".ipynb") and "/" not in path:
            return f"{path.removesuffix('.ipynb')}.md{f'#{part}' if part else ''}"
        full = (ROOT / "notebooks" / path).resolve().relative_to(ROOT).as_posix()
        mechanism = self.homes.get(full) or self.homes.get(full.removesuffix("/__init__.py"))
        return f"../{address_of(mechanism)}.md" if mechanism else on_the_web(full)

    def _code(self, source: str, metadata: Mapping[str, Any]) -> str:
        code = fenced(source, "ipython3")
        setup = "setup" in metadata.get("tags", ())
        if not (setup or metadata.get("jupyter", {}).get("source_hidden")):
            return code
        said = "Setup: what this lesson imports" if setup else "The code of this cell"
        return "\n\n".join(
            (
                html_block(f'<details class="source"><summary>{said}</summary>'),
                code,
                html_block("</details>"),
            )
        )

    def _stored(self, number: int, cell: Mapping[str, Any]) -> Iterator[str]:
        outputs = cell["outputs"]
        if not outputs:
            return
        for output in outputs:
            text = output.get("data", {}).get("text/markdown")
            if text is not None:
                yield self._markdown("".join(text))
        rest = [o for o in outputs if "text/markdown" not in o.get("data", {})]
        asked = prediction(cell)
        drawn = self.outputs.draw(rest, asked)
        if not drawn:
            return
        file = f"_outputs/{self.name}/{number}.html"
        self.sources.write(file, f'<div class="output">\n{drawn}\n</div>\n')
        yield f"```{{stored}} {file}\n```"
        if asked is not None and asked.after:
            said = "What one sees (the picture is drawn where the lesson runs)"
            yield html_block(f'<details class="after"><summary>{said}</summary>')
            yield self._markdown(asked.after)
            yield html_block("</details>")


def _notation() -> str:
    text = (ROOT / "notebooks" / NOTATION).read_text(encoding="utf-8")
    about = "What the letters, the shapes and the terms of all lessons mean"
    linked = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text)
    return f"---\ndescription: {json.dumps(about)}\n---\n\n{linked}"


def by_part(folder: str = "") -> str:
    """The lessons as links into a folder, under the parts of the course."""
    return "\n".join(
        f'<p class="part">{escape(title)}</p>'
        f'<ol class="lessons">{"".join(_entry(each, folder) for each in some)}</ol>'
        for title, some in parts_of_the_course(ROOT).items()
    )


def _entry(lesson: Lesson, folder: str) -> str:
    return (
        f'<li><a href="{folder}{Path(lesson.path).stem}.html"><b>{lesson.number:02}</b>'
        f"<span>{escape(lesson.question)}</span><small>{lesson.minutes} min</small></a></li>"
    )


def _index(every: list[Lesson]) -> str:
    tree = "\n".join(
        f"{lesson.number:02} · {lesson.question} <{Path(lesson.path).stem}>" for lesson in every
    )
    return f"""---
description: All lessons, in their order
hide-toc: true
---

# Lessons

Each lesson asks one question, starts from the idea, and ends with exercises. The pages show it as
it was run last. To change what it computes, clone the [repository](https://github.com/{HOME.slug})
and call `make lab`, or open it on Colab or Binder from its head. Letters and terms are explained
on one page, [Notation and glossary]({NOTATION}).

{html_block(by_part())}

```{{toctree}}
:hidden:

{tree}
notation
```
"""
