"""Code of a lesson in a process of its own, for lessons that set the environment before an import.

Triton decides when it is imported whether kernels are interpreted, and it reads the source of a
kernel from a file. Importing takes seconds, so a process that has run the imports of a lesson is
kept, and the code runs in copies of it.
"""

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.course.lesson import Notebook, imports

ENVIRONMENT = "os.environ["
COPIED = sys.platform == "linux"  # elsewhere a copy of what has imported PyTorch may crash

_KEEPER = """
import json, os, sys, traceback

space = {"__name__": "__main__"}

def fault(text, name):
    try:
        exec(compile(text, name, "exec"), space)
    except BaseException as error:
        return traceback.format_exception_only(error)[-1].strip()

before, copied = json.loads(sys.argv[1])
wrong = fault(before, "imports")
for line in sys.stdin:
    script, found = json.loads(line)
    child = os.fork() if copied else 0
    if not child:
        os.dup2(2, 1)  # what the code prints is no answer
        with open(script, encoding="utf-8") as file:
            wrong = wrong or fault(file.read(), script)
        with open(found, "w", encoding="utf-8") as file:
            json.dump([wrong, space.get("_found")], file)
        os._exit(0)
    os.waitpid(child, 0)
    print(flush=True)
"""


def needs_a_process(notebook: Notebook) -> bool:
    """Whether the imports of a lesson set the environment."""
    return ENVIRONMENT in imports(notebook)


def value_apart(code: str, expression: str, before: str = "") -> Any:
    """What an expression is after the code: numbers, texts, truths, and lists of them.

    The imports ``before`` run once for all calls that give the same ones. Raises RuntimeError, with
    the last line of the trace, where they or the code raise.
    """
    keeper = _kept(before) if COPIED else _keeper(before)
    assert keeper.stdin
    assert keeper.stdout
    with tempfile.TemporaryDirectory() as folder:
        script, found = Path(folder) / "of_a_lesson.py", Path(folder) / "found.json"
        script.write_text(f"{code}\n_found = {expression}\n", encoding="utf-8")
        keeper.stdin.write(json.dumps([str(script), str(found)]) + "\n")
        keeper.stdin.flush()
        keeper.stdout.readline()
        if not COPIED:
            _end(keeper)
        if not found.exists():
            raise RuntimeError("no word of it")
        wrong, value = json.loads(found.read_text(encoding="utf-8"))
    if wrong:
        raise RuntimeError(wrong)
    return value


@functools.cache
def _kept(before: str) -> subprocess.Popen[str]:
    keeper = _keeper(before)
    atexit.register(_end, keeper)
    return keeper


def _keeper(before: str) -> subprocess.Popen[str]:
    """A process that has run the imports, and runs the scripts that it reads the names of."""
    return subprocess.Popen(
        [sys.executable, "-c", _KEEPER, json.dumps([before, COPIED])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _end(keeper: subprocess.Popen[str]) -> None:
    """It ends when it has no more to read."""
    keeper.communicate()
