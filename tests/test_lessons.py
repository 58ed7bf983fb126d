"""What a lesson is: the parts that every notebook must have, and solutions that are right."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnlab.core.home import home
from attnlab.exercises import Verdict
from attnlab.predictions import Prediction, of_lesson
from tests.trained import first_training, printing_cells
from tools.course import core
from tools.course.apart import needs_a_process, value_apart
from tools.course.lesson import imports, prediction

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
PARTS = (
    *("header", "setup", "surprise", "idea", "equation", "code", "predict", "train", "break"),
    *("exercise", "cost", "paper", "recap"),
)
MACHINES = (
    "*The numbers of a training can differ a little from machine to machine: "
    "processors round differently, and every step enlarges the difference.*"
)
WIDGET = "application/vnd.jupyter.widget"
NOTATION = "[Notation and glossary](notation.md)"
WITHOUT_TRAINING = {"03_flash_attention_in_tiles"}
WHOLE_MODELS = {"05_a_transformer_from_scratch"}  # an encoder-decoder takes more lines

lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@cache
def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def tagged(path: Path, tag: str) -> list[dict[str, Any]]:
    return [c for c in read(path)["cells"] if tag in c["metadata"].get("tags", [])]


def attempts(path: Path) -> list[dict[str, Any]]:
    """The code cells of the exercises."""
    return [c for c in tagged(path, "exercise") if c["cell_type"] == "code"]


def test_the_four_first_lessons_are_there() -> None:
    assert [path.stem for path in LESSONS[:4]] == [
        "00_start_here",
        "01_scaled_dot_product",
        "02_multi_head_and_multi_query",
        "03_flash_attention_in_tiles",
    ]


@lesson
def test_parts_stand_in_order(path: Path) -> None:
    wanted = [p for p in PARTS if p != "train" or path.stem not in WITHOUT_TRAINING]
    found = [
        next((t for t in cell["metadata"].get("tags", []) if t in PARTS), None)
        for cell in read(path)["cells"]
    ]
    firsts = list(dict.fromkeys(part for part in found if part))
    assert [part for part in firsts if part in wanted] == wanted
    assert len(attempts(path)) >= 2


@lesson
def test_header_says_what_a_reader_asks_first(path: Path) -> None:
    header, metadata = source(tagged(path, "header")[0]), read(path)["metadata"]["attnlab"]
    name = f"notebooks/{path.name}"
    assert home(ROOT).colab(name) in header
    assert home(ROOT).binder(name) in header
    assert header.startswith(f"# {metadata['number']:02} · ")
    assert metadata["question"] in header
    assert "?" in metadata["question"]
    assert f"**{metadata['minutes']} min** to read" in header
    assert f"**{metadata['work_minutes']} min** to work · " in header
    assert f"{metadata['seconds']} s" in header
    assert f"{metadata['memory_mb']} MB" in header
    assert "You will be able to" in header
    assert metadata["seconds"] < 60
    assert metadata["memory_mb"] < 1500
    assert metadata["gpu"] is False
    for prerequisite in metadata["prerequisites"]:
        assert f"]({prerequisite}.ipynb)" in header
        assert (path.parent / f"{prerequisite}.ipynb").exists()


@lesson
def test_header_leads_to_notation_and_glossary(path: Path) -> None:
    header = source(tagged(path, "header")[0])
    assert header.count(NOTATION) == 1, f"the header needs one {NOTATION}"
    assert f"\n\n{NOTATION}\n\n" in header, f"{NOTATION} is a paragraph of its own"


@lesson
def test_set_up_installs_only_where_attnlab_is_missing(path: Path) -> None:
    """On Colab: the extras that replace nothing there (see tests/house/test_versions.py)."""
    setup = source(tagged(path, "setup")[0])
    before, _, after = setup.partition("except ImportError:")
    assert before == "try:\n    import attnlab\n"
    wanted = f'%pip install -q "attnlab[widgets] @ git+https://github.com/{home(ROOT).slug}"'
    assert wanted in after.splitlines()[1]
    assert len(re.findall("pip install", setup)) == 1


@lesson
def test_outputs_are_stored_and_clean(path: Path) -> None:
    cells = [c for c in read(path)["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in cells)
    outputs = [output for c in cells for output in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]
    assert len(tagged(path, "nbval-check-output")) >= 4
    for cell in tagged(path, "nbval-check-output"):
        assert cell["outputs"], "a strictly compared cell prints something"
        assert all(set(o.get("data", {"text/plain"})) <= {"text/plain"} for o in cell["outputs"])


@lesson
def test_no_widget_is_kept_that_no_output_shows(path: Path) -> None:
    """What was removed from a page is not kept as the state of a widget: it may tell an answer."""
    state = read(path)["metadata"].get("widgets", {}).get(f"{WIDGET}-state+json", {"state": {}})
    outputs = [o for c in read(path)["cells"] for o in c.get("outputs", [])]
    views = [
        o["data"][f"{WIDGET}-view+json"]
        for o in outputs
        if f"{WIDGET}-view+json" in o.get("data", {})
    ]
    wanted, shown = [view["model_id"] for view in views], set[str]()
    while wanted:
        model = wanted.pop()
        if model not in shown:
            shown.add(model)
            wanted += re.findall(r"IPY_MODEL_([0-9a-f]+)", json.dumps(state["state"][model]))
    assert set(state["state"]) == shown


@lesson
def test_what_is_compared_strictly_holds_on_every_machine(path: Path) -> None:
    """What a training in the lesson has made is compared only where a bound or an order is printed.

    A cell with the tag holds-with-room prints no digit of it: `.ci/lessons.py` runs it otherwise.
    """
    printing = [c["id"] for c in printing_cells(read(path)["cells"])]
    compared = [c["id"] for c in tagged(path, "nbval-check-output") if c["id"] in printing]
    assert compared == [c["id"] for c in tagged(path, "holds-with-room")]


@lesson
def test_a_lesson_says_why_a_training_may_differ(path: Path) -> None:
    """Once, above the first training."""
    cells = read(path)["cells"]
    says = [number for number, cell in enumerate(cells) if source(cell).count(MACHINES)]
    first = first_training(cells)
    assert first is not None
    assert len(says) == 1
    assert says[0] < first


@lesson
def test_predictions_are_asked_by_their_keys(path: Path) -> None:
    """In the order of the lesson, each in a folded cell that holds nothing but what it shows."""
    number = path.stem[:2]
    cells = [c for c in read(path)["cells"] if prediction(c)]
    keys = [re.findall(r"^predict\(\"(.*?)\"", source(c), re.MULTILINE) for c in cells]
    assert keys == [[f"{number}.{n + 1}"] for n in range(len(of_lesson(number)))]
    assert keys
    for cell, known in zip(cells, of_lesson(number), strict=True):
        told = f"Predict: {known.question} [{' / '.join(known.choices)}]"
        assert "".join(cell["outputs"][0]["data"]["text/plain"]) == told, "run it again"
        assert source(cell).startswith("# @title Predict\n")
        assert cell["metadata"]["cellView"] == "form"
        assert cell["metadata"]["jupyter"]["source_hidden"] is True
        hidden = ast.parse(source(cell)).body
        assert all(isinstance(part, ast.FunctionDef | ast.Expr) for part in hidden), (
            "what later cells use is not hidden: only the prediction and its picture are"
        )


@lesson
def test_no_answer_of_a_prediction_is_in_sight(path: Path) -> None:
    """Not in the source of its cell, nor in the three cells after it: no stored output (unless a
    person has judged that it has nothing to do with the guess: the tag ``unspoiled``), and no words
    of what is told after the guess.
    """
    cells = read(path)["cells"]
    for place, cell in enumerate(cells):
        asked = prediction(cell)
        if asked is None:
            continue
        assert not re.search(r"title=f?\"", source(cell)), source(cell)
        before = "\n".join(source(c) for c in cells[:place])
        for after in [cell, *cells[place + 1 : place + 4]]:
            told = tellings(asked, before) & set(phrases(source(after)))
            assert not told, (asked.question, told)
            allowed = {"unspoiled", "exercise"} & set(after["metadata"].get("tags", []))
            if not (prediction(after) or allowed):
                assert not after.get("outputs"), f"{asked.question}: {source(after)[:80]!r}"


def tellings(asked: Prediction, before: str) -> set[str]:
    """The runs of five words that only those who have guessed may read."""
    open_words = phrases("\n".join((before, asked.question, *asked.choices)))
    return set(phrases("\n".join((asked.why, asked.title, asked.after)))) - set(open_words)


def phrases(text: str, length: int = 5) -> list[str]:
    words = re.findall(r"[^\W_]+", text.lower())
    return [" ".join(words[n : n + length]) for n in range(len(words) - length + 1)]


@lesson
def test_a_lesson_marks_a_core_that_a_class_can_do(path: Path) -> None:
    notebook = read(path)
    facts = notebook["metadata"]["attnlab"]
    assert facts["minutes"] == core.read_minutes(notebook)
    assert facts["work_minutes"] == core.work_minutes(notebook)
    assert core.core_minutes(notebook) <= core.LONGEST
    assert len(facts["core"]["exercises"]) == 2
    assert core.sentence(notebook) in source(tagged(path, "header")[0])


@lesson
def test_a_lesson_is_short(path: Path) -> None:
    assert len(read(path)["cells"]) <= 55


@lesson
def test_links_lead_somewhere(path: Path) -> None:
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown":
            for target in re.findall(r"\]\((?!http)([^)#\s]+)", source(cell)):
                assert (path.parent / target).exists(), target


@lesson
def test_cells_are_short_and_define_no_classes(path: Path) -> None:
    """A class stands only where the lesson builds a module in view, in at most fifteen lines."""
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code":
            assert len(source(cell).splitlines()) <= 32, source(cell)[:80]
            if re.search(r"^class ", source(cell), re.MULTILINE):
                assert "from-scratch" in cell["metadata"].get("tags", []), source(cell)[:80]
                (built,) = ast.parse(source(cell)).body
                assert isinstance(built, ast.ClassDef)
                assert ast.unparse(built.bases[0]) in ("nn.Module", "torch.nn.Module")
                most = 30 if path.stem in WHOLE_MODELS else 15
                assert len(source(cell).splitlines()) <= most, source(cell)[:80]


def exercises() -> list[Any]:
    return [
        pytest.param(path, index, id=f"{path.stem}-{index}")
        for path in LESSONS
        for index in range(len(attempts(path)))
    ]


@pytest.mark.parametrize(("path", "index"), exercises())
def test_folded_solutions_are_right_and_stubs_are_not(path: Path, index: int) -> None:
    cells = read(path)["cells"]
    cell = attempts(path)[index]
    after = "\n".join(source(c) for c in cells[cells.index(cell) + 1 :][:2])
    assert "<details><summary>Hint</summary>" in after
    found = re.search(
        r"<details><summary>Solution</summary>.*?```python\n(.*?)```", after, re.DOTALL
    )
    assert found, "a folded solution follows each exercise"
    assert not verdict(path, source(cell)).right
    answered = verdict(path, source(cell), found[1])
    assert answered.right, answered.message


def verdict(path: Path, code: str, answer: str = "") -> Any:
    """What the last statement of an exercise says, after the lesson's imports and the answer."""
    *stub, check = ast.parse(code).body
    assert isinstance(check, ast.Expr), "an exercise ends with its check"
    before, attempt = imports(read(path)), f"{ast.unparse(ast.Module(stub, []))}\n{answer}"
    if needs_a_process(read(path)):
        said = f"{attempt}\n_said = {ast.unparse(check)}"
        return Verdict(*value_apart(said, "[_said.right, _said.message]", before))
    space: dict[str, Any] = {}
    exec(f"{before}\n{attempt}", space)
    return eval(ast.unparse(check), space)
