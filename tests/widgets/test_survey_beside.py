"""The picture of a sweep: each layer beside fused full attention."""

import json

import pytest
from attnlab_widgets.survey import main
from attnlab_widgets.survey.beside import beside_full_attention


def row(mechanism, n, seconds, base=(2.0, 4.0), which="both"):
    return {
        "mechanism": mechanism, "peer": None, "family": "dense", "form": "fused", "dim": 8,
        "heads": 2, "causal": False, "options": {}, "n": n, "pass": which,
        "seconds": list(seconds), "median": 1.0, "baseline_seconds": list(base), "reason": None,
        "device": "cuda", "dtype": "bfloat16", "threads": 1, "seed": 0,
        "machine": {"processor": "P", "GPU": "G"},
    }  # fmt: skip


ROWS = [
    row("full", 64, (2.0, 4.0)), row("linear", 64, (1.0, 1.0)), row("linear", 32, (8.0, 8.0)),
    row("linear", 128, (1.0, 1.0), which="forward"),
]  # fmt: skip


def test_rounds_are_compared_at_the_longest_length_the_fastest_first():
    drawn = beside_full_attention(ROWS)
    assert "on G" in drawn.layout.title.text
    told = [(one["model"], one["smallest"], one["largest"]) for one in drawn.rows]
    assert told == [("linear (fused)", 0.25, 0.5), ("full (fused)", 1.0, 1.0)]


def test_the_command_draws_and_says_what_it_cannot(tmp_path, capsys):
    rows, picture = tmp_path / "a.jsonl", tmp_path / "a.svg"
    rows.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    main(["--picture", str(rows), str(picture)])
    assert "below 1 is faster than fused full attention" in picture.read_text()
    for given in ([tmp_path / "none.jsonl", picture], [rows, tmp_path / "no" / "a.svg"]):
        with pytest.raises(SystemExit):
            main(["--picture", *map(str, given)])
    said = capsys.readouterr().err
    assert "nothing to draw" in said
    assert "does not exist" in said
