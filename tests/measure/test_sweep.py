"""The sweep: rows as they come, nothing lost or measured twice, what is left out says why."""

import json
import statistics

import pytest
from torch import Tensor, nn

from attnlab.measure import sweep as module
from attnlab.measure.peers import PEERS, Peer
from attnlab.measure.rows import append, read
from attnlab.measure.subject import subject
from attnlab.measure.sweep import Entry, Plan, identity, points, sweep
from attnlab.measure.timing import Taken

WIDTH = {"dim": 12, "heads": 3}
FIELDS = {
    "mechanism", "peer", "family", "form", "dim", "heads", "causal", "options", "n", "pass",
    "seconds", "median", "low", "high", "user", "system", "baseline_seconds", "peak_bytes",
    "reason", "device", "dtype", "threads", "seed", "machine", "date", "work",
}  # fmt: skip


def plan(*names, peers=(), **more):
    entries = [Entry(subject(name, **WIDTH)) for name in names]
    entries += [Entry(subject(peer.mechanism, **WIDTH), peer) for peer in peers]
    given = {"lengths": (32, 64), "threads": 1, "where": {"processor": "P", "torch": "T"}} | more
    return Plan(tuple(entries), **given)


def about(rows):
    return [(row["mechanism"], row["n"], row["pass"]) for row in rows]


def test_rows_have_every_field_and_the_shortest_lengths_come_first():
    rows = list(sweep(plan("linear", "bigbird")))
    assert all(set(row) >= FIELDS for row in rows)
    assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)
    assert {one for one in about(rows) if one[0] == "linear"} == {
        ("linear", n, of) for n in (16, 32, 64) for of in ("counted", "forward", "both")
        if (n, of) != (16, "counted")
    }  # fmt: skip
    assert len(rows) == points(plan("linear", "bigbird")) == 16
    for row in rows:
        if row["pass"] != "counted":
            assert row["median"] == statistics.median(row["seconds"])
            assert row["low"] <= row["median"] <= row["high"]
            assert len(row["baseline_seconds"]) == len(row["seconds"]) >= module.FEWEST
            assert row["peak_bytes"] > 4 * row["n"] * 12
    assert json.loads(json.dumps(rows[0])) == rows[0]


def test_a_row_has_what_the_processor_gave_in_the_mean_of_its_rounds():
    rounds = [Taken(3.0, 5.0, 0.25), Taken(1.0, 1.0, 0.75), Taken(9.0, 3.0, 0.5)]
    assert module._spread(rounds) == {
        "seconds": [3.0, 1.0, 9.0], "median": 3.0, "low": 2.0, "high": 6.0, "user": 3.0,
        "system": 0.5,
    }  # fmt: skip


def test_counted_rows_have_the_claim_beside_them():
    rows = [row for row in sweep(plan("full")) if row["pass"] == "counted"]
    assert [row["mixing_flops"] for row in rows] == [4 * 12 * n * n for n in (32, 64)]
    assert [row["claimed_flops"] for row in rows] == [4 * 12 * n * n for n in (32, 64)]
    assert rows[0]["state_bytes"] == 2 * 4 * 12 * 32


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    file, whole = tmp_path / "rows.jsonl", plan("full", "linear")
    for number, row in enumerate(sweep(whole)):
        append(file, row)
        if number == 4:
            break
    with file.open("a") as torn:
        torn.write('{"mechanism": "li')
    known = read(file)
    assert len(known) == 5
    rest = list(sweep(whole, known))
    for row in rest:
        append(file, row)
    assert sorted(about(known + rest)) == sorted(about(sweep(whole)))
    assert not set(map(identity, known)) & set(map(identity, rest))
    other = plan("full", "linear", where={"processor": "another", "torch": "T"})
    assert len(list(sweep(other, known))) == len(known + rest)
    assert "{" in file.read_text().splitlines()[5]  # the torn line stands alone


def test_a_file_that_is_no_sweep_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("one\ntwo\n")
    with pytest.raises(ValueError, match=r"a.json, line 1, is not a row of a sweep"):
        read(tmp_path / "a.json")


def test_without_time_every_point_is_left_out_with_a_sentence():
    known = list(sweep(plan("full", lengths=(32,))))
    rows = [row for row in sweep(plan("full", seconds=0), known) if row["pass"] != "counted"]
    assert about(rows) == [("full", 64, "forward"), ("full", 64, "both")]
    for row in rows:
        assert row["seconds"] is None
        assert "left out at n = 64: about" in row["reason"]
        assert "more than its share of the time that is left" in row["reason"]


def test_what_was_left_out_is_tried_again():
    known = list(sweep(plan("full", seconds=0)))
    left = [row for row in known if row["reason"]]
    again = list(sweep(plan("full"), known))
    assert left
    assert {identity(row) for row in left} <= {identity(row) for row in again}
    assert all(row["reason"] is None for row in again)


def test_both_passes_of_a_peer_end_in_gradients():
    made = lambda n, dim, heads: (layer := nn.Linear(dim, dim), layer)  # noqa: E731
    entry = Entry(subject("full", **WIDTH), Peer("one", "torch", "full", made, "nothing"))
    forward, both = (entry.call(8, which, plan("full"))() for which in ("forward", "both"))
    assert isinstance(forward, Tensor)
    assert [tuple(gradient.shape) for gradient in both] == [(1, 8, 12), (12, 12), (12,)]


def test_a_baseline_of_more_rounds_is_cut_to_those_that_ran_together():
    entries = [Entry(subject(name, **WIDTH)) for name in ("linear", "linformer")]
    run = module._Run(plan("linear", "linformer"), [])
    calls = {(entry, "forward"): (entry.call(8, "forward", run.plan), rounds)
             for entry, rounds in zip(entries, (3, 5), strict=True)}  # fmt: skip
    rows = list(run.timed(calls, 8))
    assert [len(row["seconds"]) for row in rows] == [3, 5]
    assert [len(row["baseline_seconds"]) for row in rows] == [3, 5]


def test_what_does_not_fit_the_memory_is_left_out_with_a_sentence(monkeypatch):
    monkeypatch.setattr(module, "available", lambda: 1e4)
    rows = [row for row in sweep(plan("full")) if row["pass"] != "counted"]
    assert {row["seconds"] is None for row in rows if row["n"] == 64} == {True}
    assert "it would hold about 0.0 GB, 0.0 GB are free" in rows[-1]["reason"]


def test_a_quadratic_point_is_predicted_from_two_shorter_ones():
    run = module._Run(plan("full"), [])
    entry = Entry(subject("full", **WIDTH))
    run.past["full", "both"] = {16: 5.0}
    assert run.expected(entry, 32, "both") == 0  # overhead predicts nothing
    run.past["full", "both"] |= {32: 1.0}
    assert run.expected(entry, 64, "both") == pytest.approx(4)  # as the card claims
    run.past["full", "both"] |= {64: 8.0}
    assert run.expected(entry, 128, "both") == pytest.approx(64)  # as measured


def test_a_form_that_is_wrong_has_no_time(monkeypatch):
    def refuse(_):
        raise module.Unproved("the form is wrong")

    monkeypatch.setattr(module, "prove", refuse)
    rows = [row for row in sweep(plan("full")) if row["pass"] != "counted"]
    assert {(row["seconds"], row["reason"]) for row in rows} == {(None, "the form is wrong")}


def test_a_length_that_a_layer_refuses_is_a_sentence():
    short = Plan((Entry(subject("linformer", **WIDTH, k=8, max_len=40)),), lengths=(32, 64))
    rows = [row for row in sweep(short) if row["n"] == 64]
    assert all(row["reason"] and "40" in row["reason"] for row in rows)
    assert len(rows) == 3


def test_decoding_is_timed_where_a_layer_decodes():
    rows = list(sweep(plan("full", "bigbird", passes=("decode",))))
    assert [one for one in about(rows) if one[2] == "decode"] == [
        ("full", n, "decode") for n in (16, 32, 64)
    ]


def test_peers_have_rows_of_their_own():
    broken = Peer("broken", "torch", "full", lambda *_: 1 / 0, "nothing")
    absent = Peer("absent", "no_such_module", "full", lambda *_: None, "nothing")
    rows = list(sweep(plan("full", peers=[absent], lengths=(32,))))
    found = [row for row in rows if row["peer"] == "absent"]
    assert len(found) == 4
    assert {row["reason"] for row in found} == {
        "no_such_module is not installed: pip install 'attnlab[peers]'"
    }
    with pytest.raises(ZeroDivisionError):  # a fault of ours is not hidden
        list(sweep(plan("full", peers=[broken], lengths=(32,))))
    assert {row["work"] for row in rows} == {None, "nothing"}
    there = [peer for peer in PEERS.values() if not peer.missing and peer.name == "linformer"]
    for row in sweep(plan("linformer", peers=there, lengths=(256,))):
        assert row["peer"] is None or row["seconds"] or row["reason"]
