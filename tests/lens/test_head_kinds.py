"""The head finder: every kind by hand, shares and positional share against plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnlab import pretrained
from attnlab.lens.head_kinds import HeadFinder, find_heads
from attnlab.lens.head_kinds.kinds import KINDS, SHARES
from attnlab.lens.head_kinds.positional import PLACES
from attnlab.lens.heads import head_statistics
from attnlab.lens.watch import watch

N, B = 23, 7
CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()[None, None]


def some_tokens(b=B, n=N, vocab=5, seed=0):
    return torch.randint(vocab, (b, n), generator=torch.Generator().manual_seed(seed))


def random_weights(b=B, h=3, n=N, seed=0, mask=None):
    scores = torch.randn(b, h, n, n, generator=torch.Generator().manual_seed(seed)).double()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1).nan_to_num()


def attending_to(keys, otherwise=0):
    """(b, 1, n, n): all attention to the key that `keys` (b, n) names; −1: to `otherwise`."""
    keys = torch.where(keys < 0, torch.as_tensor(otherwise).expand_as(keys), keys)
    return torch.nn.functional.one_hot(keys, keys.shape[1]).double()[:, None]


def last_before(tokens, shift):
    """The place `shift` after the last earlier occurrence of each token, −1 where there is none."""
    b, n = tokens.shape
    found = torch.full((b, n), -1)
    for row in range(b):
        for i in range(n):
            for j in range(i):
                if tokens[row, j] == tokens[row, i] and j + shift < i:
                    found[row, i] = j + shift
    return found


def test_every_kind_by_hand() -> None:
    tokens = some_tokens(vocab=11)
    texts = [["." if t == 3 else f"w{t}" for t in row] for row in tokens.tolist()]
    at = torch.arange(N).expand(B, N)
    stops = torch.tensor([[row.index(".") if "." in row else 1 for row in texts]]).T.expand(B, N)
    far = torch.randint(N, (N,), generator=torch.Generator().manual_seed(3)).expand(B, N)
    made = {
        "previous token": attending_to((at - 1).clamp(0)),
        "next token": attending_to((at + 1).clamp(max=N - 1)),
        "same token": attending_to(at),
        "first token": attending_to(0 * at),
        "delimiter": attending_to(stops),
        "duplicate token": attending_to(last_before(tokens, 0)),
        "induction": attending_to(last_before(tokens, 1)),
        "positional": attending_to(far),
        "mixed": random_weights(h=1),
    }
    assert set(made) == set(KINDS)
    found = find_heads({"layer": torch.cat(list(made.values()), dim=1)}, texts)
    assert [head.kind for head in found] == list(made)
    assert found.kinds == {(0, head): kind for head, kind in enumerate(made)}
    for head, kind in enumerate(made):
        assert found.of_kind(kind) == [(0, head)]
        name = next((n for n, k in SHARES.items() if k == kind), None)
        if name and name != "delimiter":
            assert found[head].shares[name] == pytest.approx(1)
            assert found[head].uniform[name] < 0.5


def test_an_even_head_is_mixed_and_position_has_nothing_to_explain() -> None:
    even = (CAUSAL / CAUSAL.sum(-1, keepdim=True)).expand(B, 2, N, N).float()
    for head in find_heads({"a": even}, some_tokens(), mask=CAUSAL):
        assert head.kind == "mixed"
        assert head.positional == 0
        for name in SHARES:
            assert head.shares[name] == pytest.approx(head.uniform[name], abs=1e-7, nan_ok=True)
            assert name == "delimiter" or head.queries[name] > 0


def test_a_short_sequence_names_no_head_that_even_attention_would_reach() -> None:
    """Of two keys, even attention gives the first one half, and 0.9 is less than twice that."""
    w = torch.tensor([[0.9, 0.1], [0.9, 0.1]]).expand(B * N, 1, 2, 2)
    (head,) = find_heads({"a": w}, torch.arange(2 * B * N).view(-1, 2))
    assert head.queries["first"] == 2 * B * N
    assert head.uniform["first"] == 0.5
    assert head.shares["first"] == pytest.approx(0.9)
    assert head.kind == "positional"


def test_of_two_kinds_that_fit_equally_the_first_is_named() -> None:
    """The first token is the only delimiter."""
    texts = [["[CLS]", *map(str, row)] for row in some_tokens(n=N - 1).tolist()]
    (head,) = find_heads({"a": attending_to(torch.zeros(B, N, dtype=torch.long))}, texts)
    assert head.shares["delimiter"] == head.shares["first"] == 1
    assert head.uniform["delimiter"] == head.uniform["first"]
    assert head.kind == "first token"


def test_few_queries_are_no_evidence() -> None:
    tokens = torch.arange(B * N).view(B, N)  # nothing repeats …
    tokens[:, N - 2] = tokens[:, 4]  # … but one token in each sequence
    anywhere = some_tokens(vocab=10**6) % torch.arange(1, N + 1)
    w = attending_to(last_before(tokens, 1), otherwise=anywhere)
    finder = HeadFinder()
    for batches in (1, 2, 3):
        finder.add({"a": w}, tokens, mask=CAUSAL)
        (head,) = finder.found()
        assert head.shares["induction"] == 1
        assert head.queries["induction"] == batches * B
        assert head.kind == ("induction" if batches * B >= 20 else "mixed")


def test_repeats_at_one_distance_do_not_tell_induction_from_a_fixed_look_back() -> None:
    run = some_tokens(n=8, vocab=10**6)
    at = torch.arange(24)
    back = attending_to((at - 7).clamp(0).expand(B, 24))
    (fixed,) = find_heads({"a": back}, run[:, at % 8])
    assert fixed.shares["induction"] == 1
    assert fixed.kind == "positional"
    several = HeadFinder()
    for length in (8, 9, 11):
        several.add({"a": back}, some_tokens(n=length, vocab=10**6)[:, at % length])
    assert several.found()[0].shares["induction"] == pytest.approx(16 / (16 + 15 + 13))


# ---- against plain loops


def by_loops(w, tokens, allowed, name):
    """Share, uniform share and number of queries, for one head w (b, n, n)."""
    own, even = [], []
    for row, i in np.ndindex(*tokens.shape):
        t, may = tokens[row].tolist(), allowed[row, i].tolist()
        keys = {
            "previous": [i - 1],
            "next": [i + 1],
            "same": [i],
            "duplicate": [j for j in range(i) if t[j] == t[i]],
            "induction": [j + 1 for j in range(i) if t[j] == t[i] and j + 1 < i],
        }[name]
        keys = [j for j in keys if 0 <= j < len(t)]
        if name in ("duplicate", "induction"):
            keys = [j for j in keys if may[j]]
        if any(may) and keys:
            own.append(sum(w[row, i, j].item() for j in keys))
            even.append(sum(may[j] for j in keys) / sum(may))
    return own, even


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=3),
    mask=st.sampled_from(["none", "causal", "window"]),
    seed=st.integers(0, 99),
)
def test_shares_are_those_of_plain_loops(tokens, mask, seed) -> None:
    tokens = torch.tensor(tokens)
    at = torch.arange(6)
    causal = at <= at[:, None]
    allowed = {"none": causal | True, "causal": causal, "window": causal & (at > at[:, None] - 3)}
    may = allowed[mask].expand(len(tokens), 1, 6, 6)
    w = random_weights(len(tokens), 2, 6, seed, may)
    found = find_heads({"a": w}, tokens, mask=None if mask == "none" else may)
    for head in found:
        for name in ("previous", "next", "same", "duplicate", "induction"):
            own, even = by_loops(w[:, head.head], tokens, may[:, 0], name)
            assert head.queries[name] == len(own)
            for ours, theirs in ((head.shares[name], own), (head.uniform[name], even)):
                mean = np.mean(theirs) if theirs else math.nan
                assert ours == pytest.approx(mean, abs=1e-12, nan_ok=True)


def test_the_shares_of_the_lens_are_the_same_numbers() -> None:
    w, tokens = random_weights(mask=CAUSAL), some_tokens()
    texts = [["." if t == 3 else str(t) for t in row] for row in tokens.tolist()]
    allowed = CAUSAL.expand(B, 1, N, N)
    theirs = head_statistics(w, texts, mask=allowed)
    heads = find_heads({"a": w}, texts, mask=CAUSAL)
    apart = ("delimiter_from_others", "delimiter_from_delimiters")
    rows = {name: [getattr(head, name) for head in heads] for name in apart}
    ours = heads.statistics(0) | rows
    for name, column in vars(theirs).items():
        np.testing.assert_allclose(ours[name], column, err_msg=name)


def positional_by_loops(w, allowed):
    """The definition, one weight at a time; w (b, n, n)."""
    b, n, _ = w.shape
    pairs = [
        (row, i, j)
        for row, i, j in np.ndindex(b, n, n)
        if allowed[row, i, j] and allowed[row, i].sum() > 1
    ]
    shares = []
    for group in (lambda i, j: (i, j), lambda i, j: i - j):
        groups = {}
        for row, i, j in pairs:
            groups.setdefault(group(i, j), []).append(
                (w[row, i, j].item(), 1 / allowed[row, i].sum().item())
            )
        left = whole = 0.0
        for members in groups.values():
            values = [value for value, _ in members]
            if len(values) > 1:
                for value, even in members:
                    left += (value - (sum(values) - value) / (len(values) - 1)) ** 2
                    whole += (value - even) ** 2
        shares.append(1 - left / whole if whole else 0)
    return min(1, max(0, *shares))


@pytest.mark.parametrize("b", [1, 3])
def test_positional_share_is_its_definition(b) -> None:
    w = random_weights(b, 2, 7, mask=CAUSAL[..., :7, :7])
    shared = random_weights(1, 2, 7, seed=5, mask=CAUSAL[..., :7, :7])
    w[:, 1] = 0.4 * w[:, 1] + 0.6 * shared[:, 1]
    allowed = CAUSAL[..., :7, :7].expand(b, 1, 7, 7)
    for head in find_heads({"a": w}, some_tokens(b, 7), mask=allowed):
        expected = positional_by_loops(w[:, head.head], allowed[:, 0])
        assert head.positional == pytest.approx(expected, abs=1e-12)
        assert b == 1 or head.head == 0 or expected > 0.2


def test_position_explains_a_positional_head_wholly_and_a_content_head_not_at_all() -> None:
    by_position = random_weights(b=1, h=2, mask=CAUSAL).expand(B, 2, N, N)
    content = random_weights(seed=1, mask=CAUSAL)
    found = find_heads(
        {"a": by_position.float(), "b": content, "c": by_position * 0.5 + content[:, :2] * 0.5},
        some_tokens(), mask=CAUSAL,
    )  # fmt: skip
    shares = [head.positional for head in found]
    assert shares[:2] == pytest.approx([1, 1], abs=1e-9)
    assert max(shares[2:5]) < 0.05
    assert all(0.2 < share < 0.8 for share in shares[5:])
    assert [head.kind for head in found] == ["positional"] * 2 + ["mixed"] * 3 + [
        "positional" if share >= 0.5 else "mixed" for share in shares[5:]
    ]


def test_one_sequence_is_explained_by_distance() -> None:
    at = torch.arange(N)
    (head,) = find_heads({"a": attending_to((at - 1).clamp(0)[None])}, some_tokens(1), mask=CAUSAL)
    assert head.positional == 1


def test_places_beyond_the_measured_ones_change_nothing() -> None:
    n = PLACES + 5
    mask = torch.ones(n, n, dtype=torch.bool).tril()[None, None]
    w = random_weights(2, 1, n, mask=mask) + random_weights(1, 1, n, seed=2, mask=mask)
    w = w / 2
    (whole,) = find_heads({"a": w}, some_tokens(2, n), mask=mask)
    short = w[..., :PLACES, :PLACES]
    (cut,) = find_heads({"a": short}, some_tokens(2, PLACES), mask=mask[..., :PLACES, :PLACES])
    assert whole.positional == pytest.approx(cut.positional, abs=1e-12)
    assert 0.05 < whole.positional < 0.5
    assert whole.queries["same"] == cut.queries["same"] + 2 * 5


# ---- batches and padding


def equal(ours, theirs):
    for one, other in zip(ours.rows(), theirs.rows(), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if isinstance(value, float):
                assert value == pytest.approx(other[name], abs=1e-9, nan_ok=True), name
            else:
                assert value == other[name], name


def test_several_batches_are_one_batch() -> None:
    w, tokens = random_weights(mask=CAUSAL), some_tokens()
    texts = [["." if t == 3 else str(t) for t in row] for row in tokens.tolist()]
    finder = HeadFinder()
    for part in (slice(0, 2), slice(2, 3), slice(3, None)):
        finder.add({"a": w[part], "b": w[part, :2]}, texts[part], mask=CAUSAL)
    whole = find_heads({"a": w, "b": w[:, :2]}, texts, mask=CAUSAL)
    assert [(head.layer, head.head) for head in whole] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    equal(finder.found(), whole)


@pytest.mark.parametrize("left", [True, False])
def test_padding_counts_for_nothing(left) -> None:
    """Sequences of 5 and 9 tokens, padded to 11, are the same as each by itself."""
    alone, padded = HeadFinder(), []
    tokens, padding = torch.full((2, 11), 1), torch.zeros(2, 11, dtype=torch.bool)
    for row, n in enumerate((5, 9)):
        mask = CAUSAL[..., :n, :n]
        w = random_weights(1, 3, n, seed=row, mask=mask)
        real = slice(11 - n, None) if left else slice(None, n)
        tokens[row, real] = some_tokens(1, n, vocab=3, seed=row)[0]
        padding[row, real] = True
        alone.add({"a": w}, tokens[row : row + 1, real], mask=mask)
        padded.append(torch.full((3, 11, 11), math.nan))
        padded[-1][:, real] = 0
        padded[-1][:, real, real] = w[0].float()
    w = torch.stack(padded)
    mask = torch.ones(1, 1, 11, 11, dtype=torch.bool).tril()
    ours = find_heads({"a": w}, tokens, padding=padding, mask=mask)
    for one, other in zip(ours, alone.found(), strict=True):
        assert one.queries == other.queries
        for name, value in one.shares.items():
            assert value == pytest.approx(other.shares[name], abs=1e-6, nan_ok=True)
            assert one.uniform[name] == pytest.approx(other.uniform[name], abs=1e-9, nan_ok=True)
        assert one.positional == pytest.approx(other.positional, abs=1e-5)


# ---- trained models


def recorded(name, batches=2):
    model, task = pretrained.load(name)
    finder = HeadFinder()
    for seed in range(batches):
        inputs = task.batch("validation", 12, seed=seed).inputs
        with watch(model) as seen, torch.no_grad():
            model(inputs)
        finder.add(seen, [task.tokens(row) for row in inputs])
    return finder.found()


def test_the_shipped_induction_model_has_both_heads() -> None:
    found = recorded("induction")
    assert found.of_kind("induction") == [(1, 0), (1, 1)]
    assert found.of_kind("previous token") == [(0, 1)]
    assert min(head.shares["induction"] for head in found[2:]) > 0.95
    assert max(head.positional for head in found[2:]) < 0.1
    assert {head.name for head in found[:2]} == {"decoder.blocks.0.attention"}
    for head in found:  # the mask of the records: a causal model
        assert head.uniform["next"] == 0
        assert head.uniform["same"] == pytest.approx(sum(1 / i for i in range(1, 65)) / 64)


def test_the_shipped_documentation_model_has_no_induction_head() -> None:
    found = recorded("documentation")
    assert found.of_kind("induction") == []
    assert all(head.queries["induction"] > 500 for head in found)


# ---- tables and clusters


def test_table() -> None:
    found = find_heads(
        {"a": attending_to((torch.arange(N) - 1).clamp(0).expand(B, N))}, some_tokens(), mask=CAUSAL
    )
    lines = repr(found).splitlines()
    assert lines[0].split() == [
        *("layer", "head", "kind", "previous", "same", "first", "duplicate", "induction"),
        "positional",
    ]
    assert lines[1].split()[:5] == ["0", "0", "previous", "token", "1.00*"]
    assert lines[2].startswith("uniform")
    row = found.rows()[0]
    assert row["kind"] == "previous token"
    assert row["previous"] == 1
    assert row["previous, uniform"] == pytest.approx(sum(1 / i for i in range(2, N + 1)) / (N - 1))
    assert not hasattr(found, "_repr_html_")


@pytest.mark.parametrize("method", ["agglomerative", "k-means"])
def test_clusters_gather_heads_that_do_the_same(method) -> None:
    at = torch.arange(N).expand(B, N)
    noise = random_weights(h=6, mask=CAUSAL)
    kinds = [(at - 1).clamp(0), at, 0 * at]
    w = torch.cat(
        [0.9 * attending_to(kinds[i % 3]) + 0.1 * noise[:, i : i + 1] for i in range(6)], 1
    )
    found = find_heads({"a": w}, some_tokens(), mask=CAUSAL)
    assert found.clusters(3, method=method).tolist() == [0, 1, 2, 0, 1, 2]
    assert found.clusters(1, method=method).tolist() == [0] * 6
    assert found.clusters(6, method=method).tolist() == list(range(6))
    apart = {f"shape {i}": [0, 0, 0, 1, 1, 1] for i in range(40)}
    assert found.clusters(2, method=method, extra=apart).tolist() == [0, 0, 0, 1, 1, 1]


def test_heads_that_are_all_alike_are_one_cluster_or_any() -> None:
    even = (CAUSAL / CAUSAL.sum(-1, keepdim=True)).expand(B, 3, N, N)
    assert find_heads({"a": even}, some_tokens()).clusters(1).tolist() == [0, 0, 0]
    assert find_heads({"a": even[:, :1]}, some_tokens()).clusters(1).tolist() == [0]


# ---- bad input

W, T = random_weights(2, 3, 5), some_tokens(2, 5)
MODEL = nn.MultiheadAttention(6, 3, batch_first=True)
with watch(MODEL) as CROSS:
    MODEL(torch.randn(2, 4, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 6))
with watch(MODEL) as NOTHING:
    pass
FOUND = find_heads({"a": W}, T)


def twice():
    finder = HeadFinder()
    finder.add({"a": W}, T)
    finder.add({"b": W}, T)


CALLS = {
    "seen": (lambda: find_heads(W, T), TypeError, "seen should be what attnlab.watch recorded"),
    "nothing seen": (lambda: find_heads(NOTHING, T), IndexError, "no attention was recognised"),
    "empty": (lambda: find_heads({}, T), ValueError, "seen is an empty dict"),
    "cross": (lambda: find_heads(CROSS, T), ValueError, "4 queries and 5 keys"),
    "other b": (lambda: find_heads({"a": W}, T[:1]), ValueError, "2 sequences of 5 queries"),
    "no tensor": (lambda: find_heads({"a": W.numpy()}, T), TypeError, "the weights of 'a' should"),
    "three axes": (lambda: find_heads({"a": W[0]}, T), TypeError, "the weights of 'a' should"),
    "NaN": (lambda: find_heads({"a": W * math.nan}, T), ValueError, "hold NaN or infinity"),
    "negative": (lambda: find_heads({"a": -W}, T), ValueError, "are negative somewhere"),
    "mask 0/1": (lambda: find_heads({"a": W}, T, mask=W), TypeError, "mask should be a bool"),
    "mask shape": (
        lambda: find_heads({"a": W}, T, mask=CAUSAL), ValueError, "mask should be broadcastable"),
    "mask axes": (
        lambda: find_heads({"a": W}, T, mask=CAUSAL[0, 0, :5, :5]), ValueError, "broadcastable"),
    "mask twice": (lambda: find_heads(CROSS, T, mask=CAUSAL), ValueError, "records have their own"),
    "padding": (lambda: find_heads({"a": W}, T, padding=T), TypeError, "padding should be a bool"),
    "padding shape": (
        lambda: find_heads({"a": W}, T, padding=T[:1] > 0), ValueError, "shape of the tokens"),
    "tokens text": (lambda: find_heads({"a": W}, "abcde"), TypeError, "should be token numb"),
    "tokens None": (lambda: find_heads({"a": W}, None), TypeError, "should be token numbers"),
    "tokens floats": (lambda: find_heads({"a": W}, T / 2), TypeError, "should be whole numbers"),
    "tokens row": (lambda: find_heads({"a": W}, T[0]), TypeError, r"whole numbers \(b, n"),
    "tokens mixed": (lambda: find_heads({"a": W}, [["a", 1]]), TypeError, "texts only"),
    "ragged": (lambda: find_heads({"a": W}, [["a"], []]), ValueError, r"one length.*\[0, 1\]"),
    "delimiters": (
        lambda: find_heads({"a": W}, T, delimiters="."), TypeError, "collection of tokens"),
    "no batch": (lambda: HeadFinder().found(), ValueError, "no batch was added yet"),
    "other layers": (twice, ValueError, "use a HeadFinder for each model"),
    "kind": (lambda: FOUND.of_kind("inducton"), ValueError, "did you mean 'induction'"),
    "layer": (lambda: FOUND.statistics(1), ValueError, "layer should be from 0 to 0, got 1"),
    "count": (lambda: FOUND.clusters(4), ValueError, "at most 3, the number of heads"),
    "count 0": (lambda: FOUND.clusters(0), ValueError, "count should be at least 1"),
    "method": (lambda: FOUND.clusters(2, method="ward"), ValueError, "there is no method 'ward'"),
    "extra": (lambda: FOUND.clusters(2, extra=[1]), TypeError, "extra should map names"),
    "extra text": (lambda: FOUND.clusters(2, extra={"x": "a"}), TypeError, "should hold numbers"),
    "extra long": (
        lambda: FOUND.clusters(2, extra={"x": [1, 2]}), ValueError, "3 finite numbers, one per"),
    "extra NaN": (
        lambda: FOUND.clusters(2, extra={"x": [1, 2, math.nan]}), ValueError, "3 finite numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_a_sentence(name) -> None:
    call, kind, sentence = CALLS[name]
    with pytest.raises(kind, match=sentence):
        call()
