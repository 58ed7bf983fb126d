"""`python -m attnlab.measure gpu`, tried without a GPU as far as it goes."""

import json

import pytest
import torch

from attnlab.measure import gpu_command
from attnlab.measure.__main__ import main
from attnlab.measure.gpu_peers import GPU_PEERS
from attnlab.measure.rows import read
from attnlab.measure.subject import subject
from attnlab.measure.summary import summaries

SMALL = ["--device", "cpu", "--dtype", "float32", "--dim", "16", "--heads", "2", "--threads", "1"]


@pytest.fixture(autouse=True)
def count_however_busy_the_machine_is(monkeypatch):
    monkeypatch.setattr("attnlab.measure.sweep.COUNTING", float("inf"))


def test_every_form_is_timed(tmp_path, capsys, monkeypatch):
    rows = tmp_path / "gpu.jsonl"
    asked = ["gpu", "full", "deltanet", *SMALL, "--lengths", "32", "64"]
    assert main([*asked, "--json", str(rows)]) == 0
    forms = {(row["mechanism"], row["form"]) for row in read(rows)}
    assert forms == {("full", "fused"), ("deltanet", "matrix"), ("deltanet", "chunked")}
    shown = capsys.readouterr().out
    assert "started at 2,048" in shown
    assert "TFLOPs per second" in shown
    before = read(rows)
    assert {one.of for one in summaries(before)} == {"forward", "both"}, "counts have no times"
    found = gpu_command.starts(before)
    for name in ("full (fused)", "deltanet (chunked), causal"):
        one, form = found[name], name.partition("(")[2].partition(")")[0]
        mechanism = name.partition(" ")[0]
        told = subject(mechanism, form=form, dim=16, heads=2)
        assert one.operations == {n: gpu_command.launches(told, n) for n in gpu_command.COUNTED}
        assert one.n == 64
        flops, seconds = (
            next(
                row[what] for row in before
                if (row["mechanism"], row["form"], row["pass"], row["n"]) == (
                    mechanism, form, which, 64,
                )
            )
            for what, which in (("flops", "counted"), ("median", "forward"))
        )  # fmt: skip
        assert one.share == pytest.approx(flops / seconds / one.peak)
        assert f"{one.share:.1%}" in shown
    monkeypatch.setattr(gpu_command, "launches", None)
    monkeypatch.setattr(gpu_command, "_peak", None)
    assert main([*asked, "--json", str(rows)]) == 0
    assert read(rows) == before  # nothing is measured or counted twice
    assert capsys.readouterr().out.split("layer ")[2] == shown.split("layer ")[2]


def test_a_file_may_hold_another_width(tmp_path, capsys):
    asked = ["gpu", "full", *SMALL, "--lengths", "32"]
    alone, both = tmp_path / "alone.jsonl", tmp_path / "both.jsonl"
    assert main([*asked, "--json", str(alone)]) == 0
    capsys.readouterr()
    others = [row | {"dim": 128, "median": row["median"] and 1e-9} for row in read(alone)]
    both.write_text("".join(f"{json.dumps(row)}\n" for row in others))
    assert main([*asked, "--json", str(both)]) == 0
    shown = capsys.readouterr().out
    mine = [row for row in read(both) if row["dim"] == 16]
    assert len(mine) < len(read(both))
    assert f"{gpu_command.starts(mine)['full (fused)'].share:.1%}" in shown


def test_nothing_is_counted_after_an_interruption(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("attnlab.measure.sweep_command.sweep", interrupted)
    monkeypatch.setattr(gpu_command, "launches", lambda *_: pytest.fail("counted"))
    assert main(["gpu", "full", *SMALL, "--json", str(tmp_path / "gpu.jsonl")]) == 130
    assert "interrupted after 0 rows" in capsys.readouterr().err


def test_a_machine_without_an_accelerator_is_told(monkeypatch, capsys):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert main(["gpu", "full"]) == 2
    assert "there is no accelerator on this machine" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_cannot_be_used_is_told(capsys):
    assert main(["gpu", "full", "--device", "cuda"]) == 2
    assert "the device 'cuda' cannot be used here" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [[], ["--device", "cuda"]])
def test_an_old_driver_is_told(monkeypatch, capsys, asked):
    """PyTorch finds a GPU, and its first call says that the driver is too old for it."""

    def refuses(*_, **__):
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nx")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch, "empty", refuses)
    assert main(["gpu", "full", *asked]) == 2
    assert capsys.readouterr().err == (
        "the device 'cuda' cannot be used here: The NVIDIA driver on your system is too old (found "
        "version 11040).\n"
    )


def test_a_name_that_is_unknown_is_told(capsys):
    assert main(["gpu", "ful", "--device", "cpu"]) == 2
    assert "'full'" in capsys.readouterr().err


def test_what_cannot_be_counted_says_why(monkeypatch, tmp_path, capsys):
    def refuses(one, n):
        raise ValueError("a sentence\nand more")

    monkeypatch.setattr(gpu_command, "launches", refuses)
    rows = tmp_path / "gpu.jsonl"
    assert main(["gpu", "full", *SMALL, "--lengths", "32", "--json", str(rows)]) == 0
    told = [row for row in read(rows) if row["pass"] == "started"]
    assert [row["n"] for row in told] == [*gpu_command.COUNTED]
    assert {(row["operations"], row["reason"]) for row in told} == {
        (None, "not counted: a sentence")
    }
    assert capsys.readouterr().out.count("not counted") == 2


def test_launches_of_a_loop_grow_with_its_tokens_and_those_of_chunks_do_not():
    loop, chunks = (
        subject("deltanet", dim=16, heads=2, form=form) for form in ("naive", "chunked")
    )
    few, more = (gpu_command.launches(loop, n) for n in (32, 64))
    assert more > 1.8 * few
    assert gpu_command.launches(chunks, 64) < 1.2 * gpu_command.launches(chunks, 32)


def test_the_lstm_is_one_kernel_at_any_length_as_its_card_says():
    one = subject("lstm", dim=16, heads=2)
    assert (one.mechanism, one.form) == gpu_command.LSTM
    assert one.card.order("launches", one.form) == 1
    assert gpu_command.launches(one, 16) == gpu_command.launches(one, 64)


def test_peers_are_layers_of_our_mechanisms():
    for peer in GPU_PEERS.values():
        subject(peer.mechanism)
    module, layer = GPU_PEERS["FlexAttention"].make(8, 16, 2)
    assert set(module) == set("qkvo")
    assert callable(layer)
