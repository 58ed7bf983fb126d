"""`python -m attnlab.measure`: the sweep from the command line, interrupted and resumed."""

import json
import re

import pytest
import torch

import attnlab
from attnlab.measure import sweep_command
from attnlab.measure.__main__ import main
from attnlab.measure.rows import read

SMALL = ["--dim", "12", "--heads", "3", "--threads", "1", "--lengths", "32", "64"]


def test_rows_are_written_and_the_table_follows(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert main(["sweep", "linear", "linformer", *SMALL, "--json", str(file)]) == 0
    shown, progress = capsys.readouterr()
    rows = read(file)
    assert {row["mechanism"] for row in rows} == {"linear", "linformer"}
    assert {row["machine"]["threads"] for row in rows} == {"1"}
    assert "linear (chunked)" in shown
    assert "load at the end" in shown
    assert re.search(r"linear \(chunked\), forward, n = 32: \S+ ms \(user \S+, system", progress)
    assert main(["sweep", "linear", "linformer", *SMALL, "--json", str(file)]) == 0
    assert read(file) == rows  # nothing is measured twice


def test_an_interruption_keeps_the_rows(tmp_path, capsys, monkeypatch):
    file, real = tmp_path / "rows.jsonl", sweep_command.sweep

    def stopped(plan, known):
        for number, row in enumerate(real(plan, known)):
            if number == 3:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr(sweep_command, "sweep", stopped)
    assert main(["sweep", "linear", *SMALL, "--json", str(file)]) == 130
    assert len(read(file)) == 3
    assert "interrupted after 3 rows" in capsys.readouterr().err
    monkeypatch.setattr(sweep_command, "sweep", real)
    assert main(["sweep", "linear", *SMALL, "--json", str(file)]) == 0
    assert len(read(file)) == 8


def test_an_option_of_the_sweep_or_no_topic_means_the_sweep(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(sweep_command, "sweep", lambda plan, known: seen.append(plan) or [])
    assert main(["fixed", "--lengths", "32"]) == 0
    assert {entry.subject.card.family for entry in seen[0].entries} == {"fixed"}
    assert main(["--json", str(tmp_path / "rows.jsonl"), "--threads", "1"]) == 0
    assert {entry.subject.card.family for entry in seen[1].entries} > {"fixed", "dense"}


def test_without_names_every_mechanism_is_swept(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(sweep_command, "sweep", lambda plan, known: seen.append(plan) or [])
    assert main(["sweep"]) == 0
    mixing = [card.name for card in attnlab.cards() if card.mixes]
    assert [entry.subject.mechanism for entry in seen[0].entries] == mixing
    assert seen[0].lengths == (1024, 2048, 4096, 8192, 16384)
    assert main(["sweep", "fixed", "full", "--peers"]) == 0
    families = {entry.subject.card.family for entry in seen[1].entries}
    assert families == {"fixed", "dense"}
    peers = {entry.peer.name for entry in seen[1].entries if entry.peer}
    assert {"x-transformers", "Hugging Face Longformer", "Hugging Face BigBird"} <= peers
    assert "linformer" not in peers
    shown = capsys.readouterr().out
    assert "local-attention (package) computes: w + 1 keys seen, 1.5 w computed" in shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["longfomer"], "did you mean 'longformer'"),
        (["rope"], "no mechanism that mixes positions, and no family, called 'rope'"),
        (["full", "--heads", "5"], "heads=5 does not divide"),
        (["full", "--dtype", "bfloat16", "--peers"], "--dtype bfloat16 is for forward and both"),
        (["full", "--device", "tpu"], "--device should be cpu or cuda"),
    ],
)
def test_what_cannot_be_run_is_said(given, words, capsys):
    assert main(["sweep", *given]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_said(capsys):
    assert main(["sweep", "full", "--device", "cuda"]) == 2
    assert "there is none here" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that runs CUDA")
def test_a_sweep_on_a_gpu(tmp_path):
    file = tmp_path / "rows.jsonl"
    given = ["sweep", "full", "--device", "cuda", "--dtype", "bfloat16", "--lengths", "1024"]
    assert main([*given, "--json", str(file)]) == 0
    assert all(row["peak_bytes"] for row in read(file) if row["pass"] != "counted")


def test_two_runs_are_compared(tmp_path, capsys):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert main(["sweep", "linear", *SMALL, "--json", str(a)]) == 0
    rows = [json.loads(line) for line in a.read_text().splitlines()]
    for row in rows:
        row["seconds"] = row["seconds"] and [5 * second for second in row["seconds"]]
    b.write_text("\n".join(map(json.dumps, rows)))
    capsys.readouterr()
    assert main(["compare", str(a), str(b)]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" 5.00 ") == 6
    assert "of 6 differ beyond their interval of 95 %" in shown
    assert main(["compare", str(a), str(tmp_path / "none")]) == 2
    assert "a sweep writes one with --json" in capsys.readouterr().err
