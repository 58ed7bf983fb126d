"""The versions fit together: pyproject's bounds, the pins, Binder's files, and what Colab holds.

Requirements are followed through the metadata of the installed packages; nothing is downloaded.
"""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")
ON_COLAB = ("figures", "widgets")

Metadata = Callable[[str], list[str]]
"""From a package's name to its `Requires-Dist` lines; empty where it is not installed."""


def read_pins(text: str) -> dict[str, Requirement]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return {canonicalize_name(pin.name): pin for pin in map(Requirement, filter(None, lines))}


def pinned_version(pin: Requirement) -> Version:
    (only,) = pin.specifier
    assert only.operator == "==", f"{pin} is not an exact pin"
    assert "*" not in only.version, f"{pin} is not an exact pin"
    return Version(only.version)


def declared(project: dict, extras: Iterable[str]) -> list[Requirement]:
    """The project's own requirements, with `attnlab[extra]` replaced by what the extra holds."""
    found = [Requirement(line) for line in project["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            inner = sorted(requirement.extras) if requirement.name == project["name"] else None
            found += [requirement] if inner is None else declared(project, inner)
    return found


def installed_requirements(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def reached(
    start: Iterable[Requirement],
    python: str,
    metadata: Metadata = installed_requirements,
    stop: Iterable[str] = (),
) -> Iterator[tuple[Requirement, str]]:
    """Every requirement that pip would meet, and who asks; not beyond the names in `stop`."""
    environment = {**default_environment(), "python_version": python}
    environment["python_full_version"] = python if python.count(".") == 2 else python + ".0"
    waiting = [(requirement, "attnlab") for requirement in start]
    followed = set()
    while waiting:
        requirement, parent = waiting.pop()
        wanted = [{**environment, "extra": extra} for extra in (requirement.extras or {""})]
        yield requirement, parent
        name = canonicalize_name(requirement.name)
        if name in stop or (name, frozenset(requirement.extras)) in followed:
            continue
        followed.add((name, frozenset(requirement.extras)))
        for child in map(Requirement, metadata(name)):
            if child.marker is None or any(child.marker.evaluate(each) for each in wanted):
                waiting.append((child, name))


def comes_with_cuda(requirement: Requirement, parent: str) -> bool:
    """torch's CUDA build pins these itself, and only machines with a GPU have it."""
    return parent.startswith(("torch", "nvidia-", "cuda-")) and requirement.name.startswith(
        ("nvidia-", "cuda-", "triton")
    )


# --------------------------------------------------------------------------- pyproject and the pins


@pytest.mark.parametrize(
    "requirement", declared(PROJECT, PROJECT["optional-dependencies"]), ids=lambda each: each.name
)
def test_pyproject_holds_one_lower_bound_for_each_requirement(requirement):
    assert [each.operator for each in requirement.specifier] == [">="], requirement


def test_requires_python_is_a_lower_bound():
    assert PROJECT["requires-python"] == ">=" + PYTHONS[0]


NAMED_OTHERWISE = {
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
}
OURS = {"attnlab", "attnlab_widgets"}
OF_OTHERS = {"fla", "flash_attn", "nltk", "onnx"}
"""Asked for in a sentence where something of theirs is given or made, or timed on a GPU."""


def imported() -> dict[str, str]:
    """The packages that library and widgets import anywhere, and a file that does."""
    found = {}
    for file in [*ROOT.glob("attnlab/**/*.py"), *ROOT.glob("widgets/attnlab_widgets/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            else:
                names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found |= {name.split(".")[0]: str(file.relative_to(ROOT)) for name in names}
    return {name: file for name, file in found.items() if name not in sys.stdlib_module_names}


def test_what_is_imported_is_declared():
    """So that the record of Colab, which follows what is declared, holds it, too."""
    stated = {
        canonicalize_name(each.name) for each in declared(PROJECT, PROJECT["optional-dependencies"])
    }
    undeclared = {
        name: file
        for name, file in imported().items()
        if name not in OURS | OF_OTHERS
        and canonicalize_name(NAMED_OTHERWISE.get(name, name)) not in stated
    }
    assert undeclared == {}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_of_every_extra_is_pinned_within_its_bounds(python):
    pins = read_pins((ROOT / "constraints.txt").read_text())
    start = declared(PROJECT, PROJECT["optional-dependencies"])
    for requirement, parent in reached(start, python):
        if comes_with_cuda(requirement, parent):
            continue
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{parent} needs {requirement}: pin it in constraints.txt"
        version = pinned_version(pins[name])
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{parent} needs {requirement}; constraints.txt pins {version}"
        )


def test_nothing_is_pinned_that_nothing_needs():
    pins = read_pins((ROOT / "constraints.txt").read_text())
    start = declared(PROJECT, PROJECT["optional-dependencies"])
    needed = {
        canonicalize_name(requirement.name)
        for python in PYTHONS
        for requirement, _ in reached(start, python)
    }
    assert sorted(set(pins) - needed) == []


def test_the_pins_are_readable_and_exact():
    assert pinned_version(read_pins("# why\nTorch_Thing==2.1.0 # because\n")["torch-thing"]) == (
        Version("2.1.0")
    )
    with pytest.raises(AssertionError, match="not an exact pin"):
        pinned_version(Requirement("numpy==2.*"))
    with pytest.raises(AssertionError, match="not an exact pin"):
        pinned_version(Requirement("numpy>=2.1"))


def test_requirements_are_followed_through_extras_and_markers():
    shelf = {
        "a": ["b[speed]>=2", 'c; python_version < "3.12"'],
        "b": ['d>=1; extra == "speed"', 'e; extra == "other"'],
    }
    found = {
        python: [
            (str(requirement), parent)
            for requirement, parent in reached(
                [Requirement("a>=1")], python, lambda name: shelf.get(name, [])
            )
        ]
        for python in ("3.11", "3.12")
    }
    later = [("a>=1", "attnlab"), ("b[speed]>=2", "a"), ('d>=1; extra == "speed"', "b")]
    assert sorted(found["3.12"]) == sorted(later)
    assert sorted(found["3.11"]) == sorted([*later, ('c; python_version < "3.12"', "a")])


# -------------------------------------------------------------------------------------------- Colab


def read_runtimes(text: str) -> dict[str, dict[str, str | None]]:
    """From the recorded table to `{runtime: {package: version, or None where it is not there}}`."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    _, *names = rows[0]
    return {
        runtime: {row[0]: None if row[column] == "-" else row[column] for row in rows[1:]}
        for column, runtime in enumerate(names, 1)
    }


def replaced_on_colab(
    start: Iterable[Requirement],
    runtime: dict[str, str | None],
    metadata: Metadata = installed_requirements,
) -> list[str]:
    """Why `pip install` would replace something there; empty where it replaces nothing.

    What is there already satisfies its own requirements, so only newcomers are followed further.
    """
    there = {name for name, version in runtime.items() if version is not None}
    faults = []
    for requirement, parent in reached(start, runtime["python"], metadata, stop=there):
        name = canonicalize_name(requirement.name)
        if name not in runtime:
            faults.append(f"{parent} needs {name}: say in colab_versions.txt whether Colab has it")
        elif name in there and not requirement.specifier.contains(runtime[name], prereleases=True):
            faults.append(
                f"{parent} needs {requirement}: Colab's {runtime[name]} would be replaced"
            )
    return faults


COLAB = (ROOT / "tests/house/colab_versions.txt").read_text()
RUNTIMES = read_runtimes(COLAB)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_installing_attnlab_replaces_nothing_on_colab(runtime):
    assert replaced_on_colab(declared(PROJECT, ON_COLAB), RUNTIMES[runtime]) == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_record_of_colab_holds_what_matters_most(runtime):
    kept = RUNTIMES[runtime]
    assert all(kept[name] for name in ("torch", "numpy", "ipywidgets", "plotly", "transformers"))
    reached_names = {
        canonicalize_name(requirement.name)
        for requirement, _ in reached(
            declared(PROJECT, ON_COLAB),
            kept["python"],
            stop={name for name, version in kept.items() if version is not None},
        )
    }
    _, _, shown_by = COLAB.partition("# What shows a widget")
    of_widgets = {line.split()[0] for line in shown_by.splitlines()[1:]}  # and what these need
    assert sorted(set(kept) - reached_names - of_widgets) == ["python"], "none without need"


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("torch>=2.12", "attnlab needs torch>=2.12: Colab's 2.11.0+cu128 would be replaced"),
        ("numpy>=2.3", "attnlab needs numpy>=2.3: Colab's 2.1.3 would be replaced"),
        ("ipywidgets>=8", "attnlab needs ipywidgets>=8: Colab's 7.7.1 would be replaced"),
        ("torch==2.13.0", "attnlab needs torch==2.13.0: Colab's 2.11.0+cu128 would be replaced"),
        ("newcomer", "newcomer needs numpy<2: Colab's 2.1.3 would be replaced"),
        ("unheard-of", "attnlab needs unheard-of: say in colab_versions.txt whether Colab has it"),
    ],
)
def test_a_replacement_on_colab_is_seen(planted, message):
    runtime = {**RUNTIMES["2026.08"], "newcomer": None}
    metadata = {"newcomer": ["numpy<2", "torch>=2"]}
    found = replaced_on_colab([Requirement(planted)], runtime, lambda name: metadata.get(name, []))
    assert found == [message]


# ------------------------------------------------------------------------------------------- Binder


def binder_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_binder_installs_the_pinned_cpu_build_and_this_repository():
    lines = binder_lines((ROOT / "binder/requirements.txt").read_text())
    torch = pinned_version(read_pins((ROOT / "constraints.txt").read_text())["torch"])
    assert lines == [
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        "-c ../constraints.txt",
        f"torch=={torch}+cpu",
        "-e .[widgets]",
    ]


def test_binder_paths_lead_somewhere():
    # pip reads the path after -c from the file that holds it; repo2docker starts pip in the root.
    (constraint,) = [
        line.removeprefix("-c ")
        for line in binder_lines((ROOT / "binder/requirements.txt").read_text())
        if line.startswith("-c ")
    ]
    assert (ROOT / "binder" / constraint).resolve() == ROOT / "constraints.txt"


def test_binder_python_is_one_of_those_that_are_tested():
    name, _, version = (ROOT / "binder/runtime.txt").read_text().strip().partition("-")
    assert name == "python"
    assert version in PYTHONS


def test_binder_holds_only_files_that_repo2docker_reads():
    read = {"requirements.txt", "runtime.txt", "apt.txt", "postBuild", "start"}
    assert {each.name for each in (ROOT / "binder").iterdir()} <= read


def test_a_lesson_on_binder_finds_what_it_imports():
    start = declared(PROJECT, ["widgets"])
    names = {canonicalize_name(each.name) for each, _ in reached(start, PYTHONS[0])}
    assert {"plotly", "ipywidgets", "anywidget", "scikit-learn", "tokenizers"} <= names


# --------------------------------------------------------------------------- continuous integration


def test_the_workflow_and_ci_call_make_test():
    assert "- run: make test\n" in (ROOT / ".github/workflows/test.yml").read_text()
    assert (ROOT / ".ci/run").read_text().rstrip().splitlines()[-1].startswith("make test")
    assert (ROOT / ".ci/run").stat().st_mode & 0o111, ".ci/run must be executable"


def test_the_workflow_covers_every_python():
    """One runs everything, the others the claims and core."""
    whole, claims = (ROOT / ".github/workflows/test.yml").read_text().split("  claims:")
    one, others = (re.findall(r'"(3\.\d+)"', part) for part in (whole, claims))
    assert sorted([*one, *others]) == sorted(PYTHONS)
    assert len(one) == 1
    assert claims.rstrip().endswith("- run: make check-claims")
