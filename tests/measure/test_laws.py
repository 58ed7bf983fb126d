"""Counts of long sequences are those of counting them, to the last one."""

from contextlib import nullcontext

import pytest
import torch

from attnlab.measure import costs, laws
from attnlab.measure.subject import subject

AT_USUAL_WIDTHS = {("linear", "chunked"), ("axial", "blocked")}  # their segments and blocks differ


@pytest.mark.parametrize(
    ("name", "form", "n", "backward"),
    [
        ("longformer", "blocked", 16_385, False),
        ("retention", "chunked", 16_385, True),
        ("axial", "blocked", 16_385, False),
        ("linear", "recurrent", 301, False),
        ("linear", "chunked", 16_385, False),
        ("performer", "recurrent", 301, False),
        ("selective_scan", "naive", 301, False),
        ("s4d", "recurrent", 301, False),
        ("retention", "recurrent", 301, False),
        ("rwkv", "recurrent", 301, False),
        ("gru", "naive", 301, False),
        ("lstm", "naive", 301, False),
        ("brc", "projected", 301, False),
        ("nbrc", "projected", 301, False),
        ("reformer", "chunked", 14_849, False),
        ("block_recurrent", "chunked", 301, False),
        ("block_recurrent", "naive", 301, False),
    ],
)
def test_the_law_of_a_form_is_what_it_costs(name, form, n, backward, monkeypatch) -> None:
    monkeypatch.setattr(laws, "AS_QUICK", 0)  # these lengths could be counted themselves
    options = {"window": 64} if name == "longformer" else {}
    layer = subject(name, dim=16, heads=8, form=form, **options)
    if (name, form) in AT_USUAL_WIDTHS:
        layer = subject(name, form=form, causal=name == "linear")
    found = costs._by_law(layer, n, backward)
    assert found is not None
    wanted = costs._counts(layer, n, backward, "meta")
    for what in (*laws.EXACT, "largest"):
        assert found[what] == wanted[what], what
    assert found["written"] == pytest.approx(wanted["written"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "form"),
    [("performer", "recurrent"), ("linear", "recurrent"), ("axial", "blocked"),
     ("linear", "chunked"), ("reformer", "chunked"), ("block_recurrent", "chunked"),
     ("block_recurrent", "naive")],
)  # fmt: skip
def test_a_million_tokens_are_counted_at_short_lengths(name, form, monkeypatch) -> None:
    lengths = []
    counts = costs._counts

    def noted(layer, n, *rest, **options):
        lengths.append(n)
        return counts(layer, n, *rest, **options)

    monkeypatch.setattr(costs, "_counts", noted)
    causal = name in ("linear", "block_recurrent")
    costs.counted.__wrapped__(subject(name, form=form, causal=causal), 10**6, False)
    assert max(lengths) < 15_000
    assert name != "block_recurrent" or sum(lengths) < 500
    assert form != "recurrent" or sum(lengths) < 500  # as each token is a step


def test_what_takes_few_more_steps_for_many_more_tokens_is_counted_itself(monkeypatch) -> None:
    """RWKV's chunks: the rounds that gather them grow with the logarithm of the length."""
    booked = {}
    counts = costs._counts

    def noted(layer, n, *rest, **options):
        found = counts(layer, n, *rest, **options)
        booked[n] = found["operations"]
        return found

    monkeypatch.setattr(costs, "_counts", noted)
    found = costs.counted.__wrapped__(subject("rwkv", form="chunked"), 10**6)
    assert 10**6 in booked
    assert sum(booked.values()) < 14_000  # of which 2,800 are those of a million tokens
    assert found.flops == counts(subject("rwkv", form="chunked"), 10**6, False, "meta")["flops"]


def counted(n: int, blocks: int = 8) -> laws.Counts:
    """Of blocks of eight, with pairs of blocks, and one tensor of the size of the sequence."""
    b = n // blocks
    kinds = {("largest", "mm", 2): 4096, ("largest", "cat", 3): 3 * n, ("peak", "mm", 2): 7 * n}
    flops = {"flops": b * b + b, "linear": n, "saved": n, "parameters": 5}
    return {"operations": 3 * b, "written": 2 * n, **flops, **kinds}


def test_a_law_is_exact_and_the_largest_may_be_another_one_later() -> None:
    n = 10**6 + 3
    found = laws.by_law(counted, n)
    assert found is not None
    assert {name: found[name] for name in laws.EXACT} == {
        name: counted(n)[name] for name in laws.EXACT
    }
    assert (found["largest"], found["peak"]) == (3 * n, 7 * n)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n: {"operations": 9},  # as quick at any length
        lambda n: {"flops": n**3},
        lambda n: {"sorts": n * n},
        lambda n: {"flops": n * n.bit_length()},
        lambda n: {"flops": n * (n + 1500).bit_length()},
        lambda n: {("largest", "sort", 1): n**2 + n % 31},  # no law, and it might be the largest
        lambda n: {"written": 2 * n + 40 * (n % 31)},
        lambda n: {"flops": n + (n // 600) ** 2},  # larger blocks around the small ones
    ],
)
def test_without_a_law_nothing_is_said(wrong) -> None:
    assert laws.by_law(lambda n: counted(n) | wrong(n), 10**6) is None


def test_what_is_constant_first_is_in_proportion_later() -> None:
    small = [(8, 600), (9, 600), (10, 600)]
    assert laws.proportional([*small, (80, 800), (120, 1200)], 10**6) == 10**7
    assert laws.proportional([*small, (80, 800), (120, 1201)], 10**6) is None
    assert laws.proportional([*small, (50, 500), (60, 600)], 10**6) is None


def test_a_kind_without_a_law_grows_from_where_it_was() -> None:
    whole = [(x, 256 * x) for x in (2112, 2624, 3136, 3648, 6720)]
    part = [(2112, 540_672), (2624, 671_744), (3136, 802_816), (3648, 933_888), (6720, 860_160)]
    assert laws._most([whole, part], 10**6) == 256 * 10**6


@pytest.mark.parametrize(
    ("name", "form"), [("log_linear", "naive"), ("ttt_linear", "chunked"), ("reformer", "chunked")]
)
def test_what_is_remembered_on_meta_counts_as_what_is_worked_out(name, form, monkeypatch) -> None:
    layer = subject(name, dim=16, heads=2, form=form)
    remembered = costs._counts(layer, 37, True, "meta")
    monkeypatch.setattr(costs, "_OnceOnMeta", nullcontext)
    assert remembered == costs._counts(layer, 37, True, "meta")


def test_an_operation_on_meta_is_worked_out_once_for_what_it_is_given() -> None:
    whole = torch.arange(6, device="meta").view(2, 3)
    with costs._OnceOnMeta() as mode:
        found = [whole * 2, whole * 2.0, whole.mT.contiguous() * 2, whole * 2]
        assert len(mode.known) == 4
        whole.view(3, 2).add_(1)  # neither a view nor what writes into its argument is remembered
    assert [x.dtype for x in found] == [torch.int64, torch.float32, torch.int64, torch.int64]
    assert [tuple(x.shape) for x in found] == [(2, 3), (2, 3), (3, 2), (2, 3)]
    assert len({id(x.untyped_storage()) for x in found}) == 4 == len(mode.known)
