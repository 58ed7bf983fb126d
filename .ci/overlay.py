"""Packages in the versions of another place, which PYTHONPATH lays over the environment.

    python .ci/overlay.py colab FOLDER     # what shows a widget on Colab, as recorded
    python .ci/overlay.py lowest FOLDER    # the lower bounds of attnlab[widgets] and transformers
    python .ci/overlay.py compare [FILE]   # the record of Colab beside its newest list, or a file

torch stays as it is: a second one would take gigabytes. The record of Colab is
tests/house/colab_versions.txt.
"""

import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests/house/colab_versions.txt"
NEWEST = "https://raw.githubusercontent.com/googlecolab/backend-info/main/pip-freeze.gpu.txt"
OF_WIDGETS = "# What shows a widget"
ASKED_BY_TRANSFORMERS = {"tokenizers": "0.21", "huggingface-hub": "0.24"}
"""What the lowest transformers asks for, where that is more than attnlab or other than the pin."""


def recorded(text: str) -> dict[str, str]:
    """The packages of the newest runtime in the record; those that it has not are left out."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        row[0]: row[-1] for row in rows if row[0] not in {"package", "python"} and row[-1] != "-"
    }


def colab() -> dict[str, str]:
    """What stands below the heading of widgets in the record."""
    below = RECORD.read_text(encoding="utf-8").partition(OF_WIDGETS)[2]
    return recorded("# " + below)


def lowest() -> dict[str, str]:
    """Each lower bound; what widgets need besides is as on Colab, where traitlets is old, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["figures"], *extras["widgets"], *extras["search"]]
    named += [line for line in extras["test"] if line.startswith("transformers")]
    bounds = {
        canonicalize_name(each.name): next(iter(each.specifier)).version
        for each in map(Requirement, named)
        if each.name not in {"torch", "attnlab"}  # torch itself needs newer sympy and networkx
    }
    return colab() | bounds | ASKED_BY_TRANSFORMERS


def differences(text: str) -> list[str]:
    """Where the newest runtime of the record is no longer what Colab's list says."""
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    newest = {canonicalize_name(name): version for name, version in found.items()}
    return [
        f"{name}: {version} in the record, {newest.get(name, 'nothing')} in Colab's list"
        for name, version in recorded(RECORD.read_text(encoding="utf-8")).items()
        if newest.get(name) != version
    ]


def install(versions: dict[str, str], folder: str) -> None:
    pins = [f"{name}=={version}" for name, version in versions.items()]
    asked = ["install", "-qq", "--no-deps", "--upgrade", "--target", folder, *pins]
    quick = subprocess.run([sys.executable, "-m", "uv", "pip", *asked], capture_output=True)
    if quick.returncode:  # no uv, or it does not get through: it reads none of pip's settings
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, *asked], check=True)


def main(what: str, *rest: str) -> None:
    if what in {"colab", "lowest"} and len(rest) == 1:
        install({"colab": colab, "lowest": lowest}[what](), rest[0])
    elif what == "compare" and len(rest) <= 1:
        text = Path(rest[0]).read_text(encoding="utf-8") if rest else download(NEWEST)
        raise SystemExit(
            "\n".join(differences(text)) or print("The record is Colab's newest list.")
        )
    else:
        raise SystemExit(__doc__)


def download(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
