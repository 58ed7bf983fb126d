"""`python -m attnlab.measure`: the sweep from the command line, interrupted and resumed."""

import json
import os
import re
import runpy
import sys

import pytest
import torch

import attnlab
from attnlab.measure import sweep_command
from attnlab.measure.__main__ import main
from attnlab.measure.rows import read
from attnlab.measure.sweep import identity

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


def test_two_processes_share_a_sweep_and_their_files_merge(tmp_path):
    """Each writes its part at the same time; the whole sweep then finds nothing left to measure."""
    mechanisms, options = ["linear", "linformer", "fnet"], [*SMALL, "--passes", "forward"]
    files = [tmp_path / f"part-{number}.jsonl" for number in (1, 2)]
    running = []
    for number, file in enumerate(files, 1):
        part = ["--part", f"{number}/2", "--json", str(file)]
        if not (process := os.fork()):
            code = 1
            try:
                del sys.modules["attnlab.measure.__main__"]  # it is to run, not to be imported
                sys.argv[1:] = ["sweep", *mechanisms, *options, *part]
                runpy.run_module("attnlab.measure", run_name="__main__")
            except SystemExit as ended:
                code = ended.code
            finally:
                os._exit(code)
        running.append(process)
    assert [os.waitpid(process, 0)[1] for process in running] == [0, 0]
    parts = [read(file) for file in files]
    assert [{row["mechanism"] for row in rows} for rows in parts] == [
        {"linear", "fnet"},
        {"linformer"},
    ]
    merged = tmp_path / "all.jsonl"
    merged.write_bytes(b"".join(file.read_bytes() for file in files))
    assert main(["sweep", *mechanisms, *options, "--json", str(merged)]) == 0
    assert read(merged) == [*parts[0], *parts[1]]
    whole = {identity(row) for row in read(merged)}
    assert len(whole) == len(read(merged)) == 3 * (2 + 3)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("3/2", "K/N with K from 1 to N is needed, such as 2/8, got '3/2'"),
        ("0/2", "K from 1 to N"),
        ("2", "K/N"),
        ("1/4", "--part 1/4: there are only 2 to share; use at most 2 parts"),
    ],
)
def test_a_part_that_there_is_not(given, sentence, capsys):
    try:
        code = main(["sweep", "linear", "linformer", "--part", given])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert sentence in capsys.readouterr().err
