"""One page of a lesson, to print: question, goals, idea, equation and recap."""

import re

from tools.course.lesson import DETAILS, Notebook, source, tags


def summary(notebook: Notebook) -> str:
    """In Markdown, with the lesson's own sentences."""
    facts = notebook["metadata"]["attnlab"]
    parts = [f"# {facts['number']:02} · {facts['question']}", _goals(_first(notebook, "header"))]
    parts += [_first(notebook, "idea"), _first(notebook, "equation")]
    questions = [
        f"**{question}** {' '.join(answer.split())}"
        for question, answer in DETAILS.findall(_all(notebook, "recap"))
        if question[:1].isdigit()
    ]
    if questions:
        parts.append("## Recap\n\n" + "\n\n".join(questions))
    return "\n\n".join(part for part in parts if part) + "\n"


def _texts(notebook: Notebook, tag: str) -> list[str]:
    return [
        source(cell)
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown" and tag in tags(cell)
    ]


def _first(notebook: Notebook, tag: str) -> str:
    return DETAILS.sub("", next(iter(_texts(notebook, tag)), "")).strip()


def _all(notebook: Notebook, tag: str) -> str:
    return "\n".join(_texts(notebook, tag))


def _goals(header: str) -> str:
    found = re.search(r"You will be able to.*", header, re.DOTALL)
    return found[0].strip() if found else ""
