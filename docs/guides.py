"""The pages of docs/guides/, which are written by hand, as pages of the site."""

from pathlib import Path

from docs.places import Sources

FOLDER = Path(__file__).parent / "guides"
ORDER = (
    "your_own_model", "your_own_mechanism", "add_a_mechanism", "exports", "what_models_keep",
    "several_processes", "public",
)  # fmt: skip


def write(sources: Sources) -> None:
    for name in ORDER:
        text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        sources.write(f"guides/{name}.md", f"---\ndescription: {title}\n---\n{text}")
    sources.write("guides/index.md", _index())


def _index() -> str:
    listed = "\n".join(ORDER)
    return f"""---
description: Using attnlab, and building on it
---

# Guides

```{{toctree}}
:maxdepth: 1

{listed}
```
"""
