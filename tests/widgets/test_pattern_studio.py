"""The pattern studio, its Python side; and Python's masks, which its JavaScript must equal.

``python -m tests.widgets.test_pattern_studio`` writes widgets/test/patterns.json anew.
"""

import dataclasses
import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets import pattern_studio
from attnlab_widgets.pattern_studio import SMALL, WORDS, PatternStudio, _refuse_unknown, presets

import attnlab
from attnlab.catalog import cards
from attnlab.core import patterns
from attnlab.core.patterns import Argument, Pattern, Primitive, by_distance, primitives, read
from attnlab.core.patterns.primitives import for_page
from attnlab.core.patterns.reading import METHODS
from attnlab.core.sparse.attention import PatternOptions
from attnlab.core.sparse.blocked import blocked
from attnlab.mechanisms.dense.full import naive
from tests.widgets.stored import FOLDER, assert_fresh

# ------------------------------------------------------------- what Python says of many expressions

BY_HAND = [
    *(("full()", 7), ("~full()", 5), ("causal()", 13), ("~causal()", 13), ("local(0)", 3)),
    *(("local(2)", 1), ("local(3)", 17), ("local(200)", 17), ("dilated(2, 3)", 19)),
    *(("dilated(radius=3, step=1)", 19), ("strided(4)", 23), ("strided(40)", 23)),
    *(("fixed(4)", 13), ("fixed(8, columns=3)", 29), ("summaries(5, 2)", 31), ("fixed(40)", 7)),
    *(("global_([0, 5])", 11), ("global_([-1, 3, 3])", 11), ("hub()", 7), ("hub(-2)", 7)),
    *(('places([1, -2], of="row")', 13), ("places((4,), of='column')", 13), ("global_([])", 3)),
    *(("prefix(4)", 11), ("causal() | prefix(40)", 11), ("block_diagonal(5)", 17)),
    *(("blocks(4, local(1))", 17), ("local(1).blocks(4)", 17), ("blocks(20)", 17)),
    *(("axial((3, 5), 0)", 15), ("axial([3, 5], 1)", 15), ("axial((2, 3, 5), axis=1)", 30)),
    *(("axial((2, 3, 5), -1)", 30), ("axial((7,), 0)", 7), ("local_2d((3, 7), 1)", 21)),
    *(("random(3)", 13), ("random(3, seed=1)", 13), ("random(0, 7)", 5), ("random(40, 2)", 11)),
    *(("random(2, seed=-3)", 29), ("random(5, seed=4294967301)", 29), ("random(3)", 128)),
    *(("(local(1) | random(2)).blocks(4)", 30), ("~(local(2) & strided(2)) | hub(3)", 17)),
    *(("(local(2) | global_([0])).causal()", 31), ("~local(1).causal()", 7)),
    *(("local(2) & ~(causal() | ~strided(2))", 19), ("full() & local(2) | full().causal()", 7)),
    *(("(local(7) | strided(8)).causal()", 128), ("strided(3).blocks(2).blocks(3)", 29)),
    *(("summaries(6, 2, 1)", 19), ("summaries(6, 2, offset=4)", 31), ("edges(2, of='row')", 13)),
    *(('edges(1, 2, of="column").blocks(3)', 17), ('edges(0, 3, of="column")', 2)),
    *(
        ("local(1).shifted(4)", 13),
        ("(~local(1)).shifted(2).causal()", 11),
        ("hub().shifted(9)", 7),
    ),
    *(("(~strided(2)).blocks(3)", 17), ("random(2, seed=3, among=~local(1))", 23)),
    *(("random(40, among=strided(5))", 29), ("random(3, among=causal()).blocks(2)", 24)),
    *(("causal() & ~local(3)", 11), ("  local( 2 )|strided( 3 ,) ", 13)),
    *(("axial((2, 3), 0).blocks(3)", 17), ("~local(2) & causal()", 7)),
]
LEAVES = [
    *("causal()", "full()", "local(1)", "local(4)", "strided(3)", "dilated(2, 4)", "fixed(6, 2)"),
    *("summaries(7, 3)", "global_([0, -1])", 'places([2, 3], of="row")', "prefix(3)", "random(2)"),
    *(
        "random(1, seed=5)",
        "edges(1, 1, of='row')",
        "local(1).shifted(5)",
        "block_diagonal(6)",
        "axial((4, 6), 0)",
        "local_2d((3, 8), 1)",
    ),
]


def composed(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(LEAVES)
    one, other = composed(chance, depth - 1), composed(chance, depth - 1)
    forms = (f"{one} & {other}", f"({one}) | ({other})", f"~({one})", f"({one}) & ~{other}")
    return chance.choice((*forms, f"{one} | {other}", f"({one}).causal()"))


def cases() -> list[tuple[str, int, str]]:
    chance = random.Random(5)
    by_chance = [(composed(chance, 3), 24) for _ in range(40)]
    painted = []
    for expression, n in (("local(2)", 11), ("local(1) | strided(3)", 13), ("~full()", 7)):
        cells = [(i, j, chance.random() < 0.5) for i in range(0, 15, 3) for j in (2, 5, 6, 14)]
        painted.append((expression, n, bytes(x for cell in cells for x in cell).hex()))
    return [(text, n, "") for text, n in BY_HAND + by_chance] + painted


def described(expression: str, n: int, painted: str) -> dict[str, Any]:
    pattern, cells = read(expression), bytes.fromhex(painted)
    mask = pattern_studio._overlaid(expression, n, cells)
    case = {
        "expression": expression,
        "n": n,
        "painted": painted,
        "code": pattern.code,
        "description": pattern.description,
        "paintedCode": pattern_studio._code(expression, n, cells),
        "mask": np.packbits(mask).tobytes().hex(),
        "masked": pattern_studio._fully_masked(mask),
        "remarks": list(dict.fromkeys(pattern.remarks(n))),
    }
    if n <= 31:
        case["receptiveField"] = [reached(mask, n, residual) for residual in (True, False)]
    return case


def reached(mask: np.ndarray, n: int, residual: bool) -> list[Any]:
    keys = [np.flatnonzero(row) for row in mask]
    table = torch.full((n, max(1, max(map(len, keys)))), -1)
    for i, found in enumerate(keys):
        table[i, : len(found)] = torch.from_numpy(found)
    field = patterns.listed(table).receptive_field(n, 64, residual=residual)
    pairs = [int(frame.sum()) for frame in field.after[: field.layers]]
    return [field.layers, field.complete, field.complete_past, pairs]


@dataclass(frozen=True, repr=False)
class Ring(Primitive):
    """A primitive that only these tests know: positions stand in circles of ``size``."""

    size: Annotated[int, Argument("whole", at_least=1, start=5)]
    radius: Annotated[int, Argument("whole", at_least=0, optional=True)] = 1
    says = "each position attends to {radius} on either side in {ordinal(size)} circles"
    rule = "((i - j) % size <= radius) | ((j - i) % size <= radius)"
    invalid = (("radius > size", "a radius of {radius} is more than the circle of {size}"),)
    misfit = (("n % size > 0", "{n} positions are no whole circles of {size}"),)
    remark = (("n == size", "all {n} positions are in one circle"),)


def unknown_to_the_page() -> dict[str, Any]:
    """The data of a new primitive, and what Python says of it: JavaScript has never heard of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_distance, "Ring", Ring, raising=False)
        data = next(one for one in for_page() if one["name"] == "ring")
        texts = ("ring(6)", "ring(4, radius=2) & causal()", "~ring(3).blocks(2)")
        return {"primitive": data, "cases": [described(text, 12, "") for text in texts]}


def written() -> str:
    scores = [round(x, 12) for x in pattern_studio.example_scores(5).flatten().tolist()]
    parts = {
        "scores": json.dumps(scores),
        "primitives": _lines(for_page()),
        "new": json.dumps(unknown_to_the_page(), ensure_ascii=False),
        "cases": _lines(described(*case) for case in cases()),
    }
    return "{" + ",\n".join(f'"{name}": {text}' for name, text in parts.items()) + "}\n"


def _lines(found: Iterable[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in found) + "\n]"


def test_what_javascript_is_compared_with_is_what_python_says_today() -> None:
    assert_fresh("patterns.json", json.loads(written()))


def test_the_expressions_name_every_primitive_that_can_be_read() -> None:
    text = " ".join(expression for expression, *_ in cases())
    used = set(re.findall(r"\w+(?=\()", text))
    assert set(primitives()) <= used
    assert set(METHODS) <= set(re.findall(r"\.(\w+)\(", text))


# ------------------------------------------------------------------------------------- the studio


def test_the_studio_gives_the_pattern_that_was_written() -> None:
    studio = PatternStudio("local(2) | global_([0])", n=11)
    assert studio.pattern == read("local(2) | global_([0])")
    assert torch.equal(studio.mask, studio.pattern.dense(11))
    assert studio.code == "local(2) | global_([0])"
    assert studio.row == 5


def test_a_pattern_is_taken_by_its_code() -> None:
    pattern = (patterns.local(2) | patterns.random(2, 5)).causal()
    studio = PatternStudio(pattern, n=13)
    assert read(studio.expression) == pattern
    assert studio.painted == b""


def test_a_pattern_that_holds_a_tensor_begins_as_painted_cells() -> None:
    documents = patterns.document(torch.tensor([0, 0, 0, 1, 1, 2, 2]))
    studio = PatternStudio(documents.causal(), n=7)
    assert torch.equal(studio.mask, documents.causal().dense(7))
    assert torch.equal(read(studio.code).dense(7), studio.mask)


def test_painting_lies_over_the_expression() -> None:
    studio = PatternStudio("local(1)", n=7)
    studio.paint(3, [5, 6])
    studio.paint([0, 2], 1, False)
    wanted = patterns.local(1).dense(7).clone()
    wanted[3, 5:], wanted[0, 1], wanted[2, 1] = True, False, False
    assert torch.equal(studio.mask, wanted)
    assert torch.equal(studio.pattern.dense(7), wanted)
    assert torch.equal(read(studio.code).dense(7), wanted)
    assert studio.pattern is studio.pattern
    studio.expression = "~full()"
    assert studio.mask.nonzero().tolist() == [[3, 5], [3, 6]]
    studio.n = 5
    assert not studio.mask.any()
    studio.n = 7
    assert studio.mask.sum() == 2
    studio.wipe()
    assert not studio.mask.any()


def test_what_was_painted_runs_sparse() -> None:
    studio = PatternStudio("local(2).causal()", n=13)
    studio.paint(11, 0)
    q, k, v = (torch.randn(2, 3, 13, 5, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(blocked(q, k, v, studio.pattern), naive(q, k, v, mask=studio.mask))


def test_the_weights_are_the_softmax_under_the_mask() -> None:
    given = torch.randn(13, 17)
    studio = PatternStudio("causal()", n=11, scores=given)
    scores = given[:11, :11].double().masked_fill(~studio.mask, -torch.inf)
    torch.testing.assert_close(studio.weights, scores.softmax(-1), atol=1e-7, rtol=1e-6)
    studio.scores = "equal"
    torch.testing.assert_close(studio.weights[4, :5], torch.full((5,), 0.2).double())
    studio.scores = "given"
    with pytest.raises(traitlets.TraitError, match="given for 13 positions, but n is 14"):
        studio.n = 14


def test_rows_that_see_nothing_are_warned_of_and_give_zeros() -> None:
    with pytest.warns(UserWarning, match="rows 0–2 attend to nothing: their outputs are zero"):
        studio = PatternStudio("causal() & ~local(2)", n=7)
    assert studio.remarks == ["rows 0–2 attend to nothing: their outputs are zero"]
    assert not studio.weights[:3].any()
    with pytest.warns(UserWarning, match="row 0 attends to nothing: its output is zero"):
        PatternStudio("causal() & ~local(0)", n=7)


def test_a_new_primitive_is_in_the_studio_without_another_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_distance, "Ring", Ring, raising=False)
    studio = PatternStudio("ring(6) | causal()", n=6)
    assert torch.equal(studio.mask, (Ring(6) | patterns.causal()).dense(6))
    assert studio.remarks == ["all 6 positions are in one circle"]
    assert "ring" in [one["name"] for one in studio._primitives]
    with pytest.raises(traitlets.TraitError, match="7 positions are no whole circles of 6"):
        studio.n = 7


def test_a_pattern_that_the_page_cannot_compute_begins_as_painted_cells() -> None:
    lines = attnlab.build("image_transformer", dim=8, heads=2, block=3, memory=2)
    pattern = next(v for m in lines.modules() for v in vars(m).values() if isinstance(v, Pattern))
    studio = PatternStudio(pattern, n=9)
    assert torch.equal(studio.mask, pattern.dense(9))
    assert studio.expression == "~full()"
    with pytest.raises(traitlets.TraitError, match="the studio's page does not know 'Lines'"):
        studio.expression = pattern.code


def test_what_is_legal_but_larger_than_the_sequence_is_remarked() -> None:
    studio = PatternStudio("strided(40).causal() | block_diagonal(3)", n=7)
    (message,) = studio.remarks
    assert (
        message
        == "a stride of 40 is longer than the sequence of 7: each position attends to itself alone"
    )
    studio.expression = "~strided(7)"
    assert studio.remarks == []


def test_pattern_and_length_change_together() -> None:
    studio = PatternStudio("axial((3, 5), 0)", n=15)
    with pytest.raises(
        traitlets.TraitError, match="3 × 5 has 15 positions, but the sequence has 7"
    ):
        studio.n = 7
    studio.row = 14
    studio.show("axial((2, 3), 0)", n=6)
    assert (studio.expression, studio.n, studio.row) == ("axial((2, 3), 0)", 6, 5)
    state = {"expression": "local_2d((3, 7), 1)", "n": 21}
    studio.set_state(state)
    assert studio.mask.shape == (21, 21)


def test_the_page_may_send_cells_as_a_buffer() -> None:
    studio = PatternStudio("local(1)", n=7)
    studio.set_state({"painted": memoryview(bytes([3, 5, 1]))})
    assert studio.mask[3, 5]
    assert studio.painted == bytes([3, 5, 1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PatternStudio("lokal(2)"), "no pattern 'lokal'; did you mean 'local'"),
        (lambda: PatternStudio("local(2"), "cannot read the pattern 'local\\(2'"),
        (lambda: PatternStudio("local(-1)"), "radius should be at least 0, got -1"),
        (lambda: PatternStudio("strided(0)"), "stride should be at least 1, got 0"),
        (lambda: PatternStudio("local_2d((3,), 1)"), "should have 2 dimensions, got the shape"),
        (lambda: PatternStudio("axial((3, 5), 0)"), "3 × 5 has 15 positions, but .* has 32"),
        (lambda: PatternStudio("global_([32])"), "position 32 is outside of a sequence of 32"),
        (lambda: PatternStudio("per_head(full(), causal())"), "differs between heads"),
        (lambda: PatternStudio("full()", n=129), "at most 128 positions, got n=129"),
        (lambda: PatternStudio("full()", n=0), "at least one position, got n=0"),
        (lambda: PatternStudio("full()", scores="hot"), '"sharp", "flat", "equal" or an array'),
        (lambda: PatternStudio("full()", 7, scores=np.ones((5, 7))), "5 positions, but n is 7"),
        (lambda: PatternStudio("full()", 7).paint(7, 0), "row 7 is outside of a sequence of 7"),
        (lambda: PatternStudio("full()", 7).paint(0, [1, -1]), "key -1 is outside of a sequence"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("expression", "lokal(2)", "did you mean 'local'"),
        ("expression", "global_([9])", "position 9 is outside of a sequence of 7"),
        ("n", 200, "at most 128 positions, got n=200"),
        ("painted", b"\x00\x01", "three bytes for each cell"),
        ("painted", bytes([0, 128, 1]), "both from 0 to 127"),
        ("painted", bytes([0, 0, 2]), "1 where it may be attended to or 0"),
        ("row", 7, "`row` should be from 0 to 6, got 7"),
        ("layer", 0, "`layer` should be from 1"),
        ("block", -1, "`block` should be from 0 to 128, got -1"),
        ("head_dim", 0, "`head_dim` should be from 1"),
        ("scores", "given", "there are no given scores"),
    ],
)
def test_what_may_not_be_set_is_answered_with_a_sentence(name: str, value: Any, words: str) -> None:
    studio = PatternStudio("local(1)", n=7)
    before = getattr(studio, name)
    with pytest.raises(traitlets.TraitError, match=words):
        setattr(studio, name, value)
    assert getattr(studio, name) == before


def test_wrong_kinds_are_answered_with_a_sentence() -> None:
    with pytest.raises(TypeError, match="an expression or a Pattern, got ndarray"):
        PatternStudio(np.ones((3, 3), bool))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a whole number, got 7\.0"):
        PatternStudio("full()", 7.0)  # type: ignore[arg-type]


def test_every_pattern_that_is_given_comes_back() -> None:
    def back(pattern: Pattern) -> torch.Tensor:
        return PatternStudio(PatternStudio(pattern, 12).pattern, 12).mask

    table = torch.tensor([[i, (5 * i + 1) % 12] for i in range(12)])
    for pattern in (patterns.listed(table), patterns.fixed(4, 2), patterns.random(3, 7)):
        assert torch.equal(back(pattern), pattern.dense(12))


# ---- the menus


def test_every_mechanism_that_the_page_knows_is_in_the_menu() -> None:
    """By the pattern of its options, which the studio can show."""
    known, named = dict(presets()), {name for name, _, _ in SMALL}
    assert len(known) == len(SMALL) + 2
    for card in cards():
        if card.options is None or not issubclass(card.options, PatternOptions):
            continue
        try:
            _refuse_unknown(options_of(card, card.variants[0]).pattern().code)
        except ValueError:
            continue
        assert card.name in named, f"{card.name} needs a line in SMALL"
        assert any(title.startswith(card.title) for title in known)
    assert known["Longformer, causal window"] == "local(4) & causal()"
    for code in known.values():
        assert 0 < int(read(code).dense(32).sum()) <= 32 * 32
        assert PatternStudio(code).code == code


def options_of(card: Any, variant: Any) -> Any:
    fields = {field.name for field in dataclasses.fields(card.options)}
    return card.options(**{name: value for name, value in variant.items() if name in fields})


def test_every_primitive_of_the_menu_is_explained() -> None:
    offered = {one["name"] for one in for_page()} - {"blocks"}
    assert set(WORDS) == offered
    assert all(len(word) < 28 for word in WORDS.values())


def test_half_a_name_is_answered_with_the_nearest() -> None:
    studio = PatternStudio()
    with pytest.raises(traitlets.TraitError, match="no pattern 'glob'; did you mean 'global_'"):
        studio.expression = "glob"
    with pytest.raises(traitlets.TraitError, match="'local' needs its brackets"):
        studio.expression = "local"


if __name__ == "__main__":
    (FOLDER / "patterns.json").write_text(written(), encoding="utf-8")
