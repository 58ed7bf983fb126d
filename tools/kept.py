"""``python -m tools.kept notebook …``: train what lessons keep, and write their files again.

Runs each notebook with ``Kept(…, anew=True)`` in place of ``Kept(…)``, and writes what it has
trained to ``attnlab/pretrained/lessons``. The notebooks stay as they are.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LARGEST = 2_000_000  # bytes
_KEPT = re.compile(r'\bKept\("(\d\d)"\)')
_SAVE = """
written = next(each for each in [*globals().values()] if isinstance(each, Kept)).save()
print(written, written.stat().st_size)
"""


def anew(path: Path) -> Any:
    """The notebook with all its trainings, and a cell at its end that saves them."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    keeping = [c for c in notebook.cells if c.cell_type == "code" and _KEPT.search(c.source)]
    if not keeping:
        raise ValueError(f'{path} has no expression such as Kept("14"): it keeps nothing')
    for cell in keeping:
        cell.source = _KEPT.sub(r'Kept("\1", anew=True)', cell.source)
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE))
    return notebook


def trained(path: Path) -> tuple[str, int]:
    """Run the notebook anew; the place of the file that was written, and its bytes."""
    from nbclient import NotebookClient

    notebook, folder = anew(path), {"metadata": {"path": str(path.resolve().parent)}}
    NotebookClient(notebook, timeout=1800, resources=folder).execute()
    written, _, size = notebook.cells[-1].outputs[-1]["text"].strip().rpartition(" ")
    return written, int(size)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kept", description=__doc__)
    parser.add_argument("notebook", type=Path, nargs="+")
    large = False
    for path in parser.parse_args(arguments).notebook:
        try:
            written, size = trained(path)
        except (OSError, ValueError) as error:
            parser.error(str(error))
        large |= size > LARGEST
        print(f"{written}: {size:,} bytes{', more than 2 MB' if size > LARGEST else ''}")
    return int(large)


if __name__ == "__main__":
    sys.exit(main())
