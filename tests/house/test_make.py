"""The environment that `make` builds, watched through a Python that only notes what it is asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("make", "awk", "sed")

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in NEEDED), reason=f"needs {', '.join(NEEDED)}"
)

# Answers as a Python would; what it is asked goes to asked.txt, one line a call.
PYTHON = """#!/bin/sh
echo "$@" >> "$HOUSE/asked.txt"
case "$*" in
    --version) echo "Python 3.9.2" ;;
    *version_info*) exit ${TOO_OLD:-0} ;;
    *ensurepip*) exit ${NO_VENV:-0} ;;
    *"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *--index-url*) exit ${CPU_HOST_AWAY:-0} ;;
    *"-m uv"*) exit ${UV_AWAY:-0} ;;
    *changed.py\\ tests*) echo "tests/test_rooms.py --pages=fixed/axial"; exit ${NO_MAIN:-0} ;;
    *changed.py\\ browser*) echo "$IN_A_BROWSER"; exit ${NO_MAIN:-0} ;;
    *changed.py\\ goals*) echo "$GOALS" ;;
    *--report*) echo "\\"requires_dist\\": [\\"${TORCH_NEEDS:-sympy}-cu13==1.0\\"]" ;;
esac
"""


@pytest.fixture
def make(tmp_path):
    """Runs make in a folder that holds no more than it reads; returns the process and the calls."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in (".ci/overlay.py", "tests/house/colab_versions.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    write_program(programs / "python3", PYTHON)
    write_program(programs / "nvidia-smi", "#!/bin/sh\nexit ${NO_GPU:-1}\n")
    write_program(programs / "chromium", "#!/bin/sh\n")
    for name in ("node", "npm"):
        write_program(programs / name, "#!/bin/sh\nexit ${STALE_BUNDLES:-0}\n")

    def run(*goals: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        asked = tmp_path / "asked.txt"
        asked.write_text("")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        path = f"{programs}{os.pathsep}{inherited['PATH']}"
        done = subprocess.run(
            ["make", *goals],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**inherited, "PATH": path, "HOUSE": str(tmp_path), **environment},
        )
        return done, asked.read_text().splitlines()

    return run


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def installs(calls: list[str]) -> list[str]:
    """What pip was asked to install, its options for silence and patience apart."""
    return [call.split("install -qq ")[1] for call in calls if " install " in call]


def torch_pin() -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    (pin,) = [line for line in lines if line.startswith("torch==")]
    return pin


EVERYTHING = "-c constraints.txt -e .[test,peers,site]"
UV = next(
    line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("UV :=")
)[6:]


def test_help_comes_first_and_names_both_commands(make):
    done, calls = make()
    assert done.returncode == 0
    assert calls == []
    reported = [line.split()[1] for line in done.stdout.splitlines()]
    assert {"help", "lab", "test", "check", "notebooks", "format", "clean", "binder-check"} <= set(
        reported
    )
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines()), "each with its sentence"


def test_lab_builds_the_environment_once_and_opens_the_first_lesson(make):
    done, calls = make("lab")
    assert done.returncode == 0, done.stderr
    assert installs(calls)[2:] == [EVERYTHING]
    assert "-m jupyterlab" in calls[-1]
    assert calls[-1].endswith("notebooks/00_start_here.ipynb")
    done, calls = make("lab")
    assert [call.split()[1] for call in calls] == ["jupyterlab"]


def test_where_uv_does_not_get_through_pip_installs(make):
    done, calls = make("lab", UV_AWAY="1")
    assert done.returncode == 0, done.stderr
    assert installs(calls)[2:] == [EVERYTHING, EVERYTHING]
    assert [call.split()[1] for call in calls if EVERYTHING in call] == ["uv", "pip"]


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_the_environment_is_built_again_when_its_versions_change(make, tmp_path, changed):
    make(".venv/.installed")
    later = (tmp_path / ".venv/.installed").stat().st_mtime + 10
    os.utime(tmp_path / changed, (later, later))
    done, calls = make(".venv/.installed")
    assert done.returncode == 0, done.stderr
    assert any("-m venv --clear .venv" in call for call in calls)


def test_an_interrupted_build_is_not_taken_for_an_environment(make, tmp_path):
    write_program(
        tmp_path / "programs/python3",
        PYTHON.replace("*--report*", "*peers*) exit 7 ;;\n*--report*"),
    )
    done, _ = make("lab", UV_AWAY="1")
    assert done.returncode != 0
    assert not (tmp_path / ".venv/.installed").exists()


def test_with_an_old_python_make_says_what_to_do(make):
    done, calls = make("lab", TOO_OLD="1")
    assert done.returncode != 0
    assert "attnlab needs Python 3.11 or newer; python3 is: Python 3.9.2." in done.stderr
    assert "make PYTHON=python3.12 lab" in done.stderr
    assert not any("venv --clear" in call for call in calls)


def test_without_venv_make_says_what_to_install(make):
    done, calls = make("test", NO_VENV="1")
    assert done.returncode != 0
    assert "sudo apt-get install python3-venv" in done.stderr
    assert not any("venv --clear" in call for call in calls)


def test_without_a_gpu_torch_comes_in_its_cpu_build(make):
    _, calls = make(".venv/.installed")
    assert installs(calls) == [
        f"--no-deps --retries 0 --timeout 5 --index-url https://download.pytorch.org/whl/cpu "
        f"{torch_pin()}+cpu",
        UV,
        EVERYTHING,
    ]


def test_with_a_gpu_torch_comes_from_the_usual_index(make):
    _, calls = make(".venv/.installed", NO_GPU="0")
    assert installs(calls) == [torch_pin(), UV, EVERYTHING]


def test_the_usual_index_serves_quietly_when_it_holds_the_cpu_build(make):
    done, calls = make(".venv/.installed", CPU_HOST_AWAY="1")
    assert done.returncode == 0, done.stderr
    assert installs(calls)[-3:] == [torch_pin(), UV, EVERYTHING]
    assert "CUDA" not in done.stdout + done.stderr


@pytest.mark.parametrize("package", ["nvidia-cublas", "cuda-toolkit"])
def test_the_cuda_build_is_announced_before_it_is_downloaded(make, package):
    done, calls = make(".venv/.installed", CPU_HOST_AWAY="1", TORCH_NEEDS=package)
    assert done.returncode == 0, done.stderr
    assert "PyTorch comes in its CUDA build, about 3 GB" in done.stdout
    assert installs(calls)[-3:] == [torch_pin(), UV, EVERYTHING]


def test_every_check_runs_though_the_first_fails(make, tmp_path):
    failing = PYTHON.replace("*--report*", "*ruff*|*mypy*) exit 1 ;;\n    *--report*")
    write_program(tmp_path / "programs/python3", failing)
    done, calls = make("test")
    assert done.returncode != 0
    assert "Every check passed." not in done.stdout
    assert steps(calls) == ["ruff", "ruff", "mypy", *5 * ["pytest"]]
    assert "-m ruff format --check ." in calls
    unit, browser, *elsewhere = (call for call in calls if "-m pytest" in call)
    assert unit.endswith(
        "--ignore=tests/browser --ignore=tests/widgets tests tests/widgets/test_every_widget.py"
    )
    assert browser.endswith(" tests/browser")
    assert [call.split()[-1].split("/")[0] for call in elsewhere] == ["tests", "notebooks", "tests"]


def steps(calls):
    return [call.split()[1] for call in calls if call.startswith(("-m ruff", "-m mypy", "-m pyt"))]


def test_daily_checks_run_the_tests_of_what_changed(make):
    done, calls = make("check", SINCE="trunk")
    assert done.returncode == 0, done.stderr
    assert steps(calls) == ["ruff", "ruff", "mypy", "pytest"]
    assert [call for call in calls if "changed.py" in call] == [
        f".ci/changed.py {what} trunk" for what in ("goals", "tests", "browser")
    ]
    (tests,) = (call for call in calls if "-m pytest" in call)
    assert tests.endswith("tests/test_rooms.py --pages=fixed/axial")


def test_daily_checks_run_what_changed_in_a_browser_and_in_a_front_end(make):
    chosen = {"IN_A_BROWSER": "tests/browser/test_lessons.py --lessons=07_a"}
    done, calls = make("check", GOALS="check-widgets", **chosen)
    assert done.returncode == 0, done.stderr
    assert calls[-1].endswith("tests/browser/test_lessons.py --lessons=07_a")
    assert make("check", GOALS="check-widgets", STALE_BUNDLES="1")[0].returncode != 0


def test_without_the_commit_to_compare_with_daily_checks_fail(make):
    done, calls = make("check", NO_MAIN="1")
    assert done.returncode != 0
    assert steps(calls) == ["ruff", "ruff", "mypy"]
    assert "What changed is sound" not in done.stdout


@pytest.mark.parametrize(
    ("ci", "program", "browser"),
    [
        ("", None, False),
        ("", "chromium", True),
        ("", "chromium-headless-shell", True),
        ("true", None, True),
    ],
)
def test_without_a_browser_the_lessons_run_but_never_so_in_ci(make, tmp_path, ci, program, browser):
    alone = only(tmp_path, "make", "awk", "sed", "sh", "id", "cp", "mkdir", "touch", "python3")
    if program:
        write_program(tmp_path / "bin" / program, "#!/bin/sh\n")
    done, calls = make("check-browser", PATH=alone, CI=ci)
    assert done.returncode == 0, done.stderr
    assert calls[-1].endswith("tests/browser" if browser else "notebooks")
    assert ("--nbval-lax" in calls[-1]) == (not browser)
    assert ("chromium is missing" in done.stdout) == (not browser)


@pytest.mark.parametrize("again", ["passes", "fails"])
def test_a_browser_test_that_fails_is_tried_once_more(make, tmp_path, again):
    second = "exit 1" if again == "fails" else "exit 0"
    failing = f"*--last-failed*) {second} ;;\n    *tests/browser*) exit 1 ;;\n    *--report*"
    write_program(tmp_path / "programs/python3", PYTHON.replace("*--report*", failing))
    write_program(tmp_path / "programs/chromium", "#!/bin/sh\n")
    done, calls = make("check-browser")
    assert (done.returncode == 0) == (again == "passes")
    first, last = (call.split() for call in calls[-2:])
    assert first[-1] == last[-1] == "tests/browser"
    assert set(last) - set(first) == {"--last-failed", "--last-failed-no-failures", "none"}


def only(tmp_path, *tools):
    """A search path of these programs alone; those of the fixture count before the machine's."""
    (tmp_path / "bin").mkdir()
    for tool in tools:
        ours = tmp_path / "programs" / tool
        (tmp_path / "bin" / tool).symlink_to(ours if ours.exists() else shutil.which(tool))
    return str(tmp_path / "bin")


def test_success_is_said(make):
    done, _ = make("test")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("Every check passed.")


def test_a_stale_bundle_fails(make):
    assert make("check-widgets")[0].returncode == 0
    assert make("check-widgets", STALE_BUNDLES="1")[0].returncode != 0


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 2)])
def test_without_node_front_ends_are_skipped_but_never_in_ci(make, tmp_path, ci, code):
    alone = only(tmp_path, "make", "awk", "sed", "sh", "tail")
    done, _ = make("check-widgets", PATH=alone, CI=ci)
    assert done.returncode == code
    assert "node and npm are missing" in done.stdout + done.stderr
