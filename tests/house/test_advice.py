"""Every name that a message or a docstring advises can be typed after ``import attnlab`` alone."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

from attnlab.models.storage import DIGEST

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w./-])attnlab(?:\.[A-Za-z_]\w*)+(?![\w/-])")
RESOLVE = """
import functools, json, sys
import attnlab
for name in json.load(sys.stdin):
    try:
        functools.reduce(getattr, name.split(".")[1:], attnlab)
    except AttributeError as error:
        print(name, error)
"""


def advised() -> dict[str, str]:
    """Each name in a text of the library, and a file that has it."""
    return {
        name: file.name
        for folder in ("attnlab", "widgets/attnlab_widgets")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in NAME.findall(node.value)
        if name != DIGEST  # of a saved model's metadata
    }


def test_every_advised_name_resolves_in_a_fresh_process() -> None:
    names = sorted(advised())
    assert "attnlab.lens.mixing.mixing_matrix" in names
    run = subprocess.run(
        [sys.executable, "-c", RESOLVE],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("", 0), run.stdout + run.stderr
