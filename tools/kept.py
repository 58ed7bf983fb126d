"""``python -m tools.kept notebook …``: train what lessons keep, and write their files again.

Runs each notebook with ``Kept(…, anew=True)`` in place of ``Kept(…)``, and writes what it has
trained to ``attnlab/pretrained/lessons``. The notebooks stay as they are.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

LARGEST = 2_000_000  # bytes
_KEPT = re.compile(r'\bKept\("(\d\d)"\)')
_SAVE = """
written = next(each for each in [*globals().values()] if isinstance(each, Kept)).save()
print(written, written.stat().st_size)
"""


def trained(path: Path) -> str:
    """Run the notebook; the place of the file that was written, and its bytes."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    keeps = False
    for cell in notebook.cells:
        if cell.cell_type == "code" and _KEPT.search(cell.source):
            keeps, cell.source = True, _KEPT.sub(r'Kept("\1", anew=True)', cell.source)
    if not keeps:
        raise ValueError(f'{path} has no expression such as Kept("14"): it keeps nothing.')
    notebook.cells.append(nbformat.v4.new_code_cell(_SAVE))
    folder = {"metadata": {"path": str(path.resolve().parent)}}
    NotebookClient(notebook, timeout=1800, resources=folder).execute()
    return str(notebook.cells[-1].outputs[-1]["text"]).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kept", description=__doc__)
    parser.add_argument("notebook", type=Path, nargs="+")
    large = False
    for path in parser.parse_args(arguments).notebook:
        written, _, size = trained(path).rpartition(" ")
        large |= int(size) > LARGEST
        print(f"{written}: {int(size):,} bytes{', more than 2 MB' if int(size) > LARGEST else ''}")
    return int(large)


if __name__ == "__main__":
    sys.exit(main())
