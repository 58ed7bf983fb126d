"""Code of a lesson in a process of its own, for lessons that set the environment before an import.

Triton decides when it is imported whether kernels are interpreted, and it reads the source of a
kernel from a file.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.course.lesson import Notebook, imports

ENVIRONMENT = "os.environ["


def needs_a_process(notebook: Notebook) -> bool:
    """Whether the imports of a lesson set the environment."""
    return ENVIRONMENT in imports(notebook)


def value_apart(code: str, expression: str) -> Any:
    """What an expression is after the code: numbers, texts, truths, and lists of them.

    Raises RuntimeError, with the last line of the trace, where the code raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, found = Path(folder) / "of_a_lesson.py", Path(folder) / "found.json"
        told = f"import json, pathlib\npathlib.Path({str(found)!r}).write_text(json.dumps(_found))"
        script.write_text(f"{code}\n_found = {expression}\n{told}\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no word of it"])[-1])
        return json.loads(found.read_text(encoding="utf-8"))
