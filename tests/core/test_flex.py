"""FlexAttention under patterns: its block masks, its values and gradients, when it is chosen, and
what is said where it cannot run.

Its kernels need a GPU. Here the lists that they read are read by hand (``tests.flex_by_hand``), and
PyTorch's own operator computes them without compilation.
"""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab import catalog
from attnlab.core import patterns as p
from attnlab.core.card import Card
from attnlab.core.patterns import Intervals, Pattern
from attnlab.core.probe import record
from attnlab.core.sparse import auto as choice
from attnlab.core.sparse import flex as compiled
from attnlab.core.sparse.attention import PatternOptions, naive
from attnlab.core.sparse.auto import auto, choose
from attnlab.core.sparse.blocked import by_pattern
from attnlab.core.sparse.flex import BLOCK, CannotCompile, flex, refusal
from attnlab.testing.mechanisms import (
    CARDS,
    Sizes,
    call,
    causalities,
    gradients,
    inputs,
    masks,
    named,
    variants,
)
from tests.core.test_sparse import NAMES, PATTERNS
from tests.flex_by_hand import WAYS, allowed, computed_by_hand, visited

CPU = torch.device("cpu")
PAGES = [card for card in CARDS if issubclass(card.options, PatternOptions)]
KERNELS = [
    named(card, "flex", variant)
    for card in CARDS
    if "flex" in card.kernels
    for variant in range(len(variants(card)))
]
LENGTHS = [(301, 301), (128, 256), (45, 401), (1, 131)]  # only one of them divides into blocks


def patterns_of(card: Card, heads: int = 6) -> list[Pattern]:
    """The patterns of its variants, causal and not."""
    own = [
        card.options(**{k: v for k, v in given.items() if k in card.options.__annotations__})
        for given in variants(card)
    ]
    return [
        made.pattern(causal=causal, heads=heads)
        for made in own
        for causal in causalities(card)
        if not (causal and getattr(made, "global_positions", ()))
    ]


@pytest.mark.parametrize("card", PAGES, ids=lambda card: card.name)
def test_every_mechanism_that_is_a_pattern_has_the_kernel(card: Card) -> None:
    if card.name in {"etc"}:
        pytest.skip("its pairs have labels, each with a vector of its own")
    assert list(card.kernels) == ["flex"]
    assert "on a GPU flex" in card.forms_text()


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("card", PAGES, ids=lambda card: card.name)
def test_block_masks_of_mechanisms(card: Card, lengths: tuple[int, int]) -> None:
    for pattern in patterns_of(card):
        check_lists(pattern, *lengths, heads=6)


@pytest.mark.parametrize("lengths", [(101, 101), (43, 101)], ids=str)
@pytest.mark.parametrize("pattern", PATTERNS[:-1], ids=NAMES[:-1])
def test_block_masks_of_patterns(pattern: Pattern, lengths: tuple[int, int]) -> None:
    check_lists(pattern, *lengths, heads=2)


def check_lists(pattern: Pattern, n: int, m: int, heads: int) -> None:
    """The lists hold what ``covers`` says, no pair is missing or too many, both passes agree, and
    padding takes away its keys alone."""
    dense = pattern.dense(n, m).expand(heads, n, m)
    valid = torch.rand(2, m) > 0.4
    for padded in (False, True):
        found = compiled._by_group(pattern, n, m, heads, padded, CPU)
        assert sorted(head for group, _ in found for head in group) == list(range(heads))
        for group, visits in found:
            mask = visits.under(valid) if padded else visits.mask
            mixed, full = (visited(mask, "kv", kind) for kind in ("", "full_"))
            assert not (mixed & full).any(), "a block is computed twice"
            for kind, rows in (("", mixed), ("full_", full)):
                assert torch.equal(visited(mask, WAYS[1], kind), rows), "the passes differ"
            covered = of_blocks(pattern.sized(m), heads, group, n, m)
            own = next(of for chosen, of in by_pattern(pattern, heads) if chosen == group)
            assert compiled.visited_share(own, n, m) == covered.some.double().mean()
            assert torch.equal(mixed | full, covered.some)
            assert not (full & ~covered.every).any()
            seen = allowed(mask, 2, n, m)[:, 0]
            for head in group:
                keys = valid[:, None] if padded else torch.ones(2, 1, m, dtype=torch.bool)
                assert torch.equal(seen, dense[head] & keys)


def of_blocks(pattern: Pattern, heads: int, group: list[int], n: int, m: int) -> Any:
    own = next(of for chosen, of in by_pattern(pattern, heads) if chosen == group)
    rows, columns = Intervals.blocks(m - n, m, BLOCK), Intervals.blocks(0, m, BLOCK)
    return own.covers(rows[:, None], columns)


GROWING = [
    *((card, {}) for card in PAGES if card.kernels),
    (catalog.card("axial"), {"axis": 0}),
    (catalog.card("axial"), {"split": True}),
    (catalog.card("sparse_transformer"), {"kind": "fixed", "separate": True}),
    (catalog.card("sparse_transformer"), {"layer": 0}),
    (catalog.card("longformer"), {"dilation": 3}),
]


@pytest.mark.parametrize(("card", "given"), GROWING, ids=lambda each: getattr(each, "name", None))
def test_the_kernel_computes_as_many_pairs_as_the_card_says(
    card: Card, given: dict[str, Any]
) -> None:
    """Whole blocks, in which some pair is allowed, at two lengths."""
    options, computed, claimed = card.options(**given), [], []
    for n in (4096, 16_384):
        pattern = options.pattern(causal=card.causal == "always", heads=2)
        found = compiled._by_group(pattern, n, n, 2, False, CPU)
        computed += [
            sum(
                len(heads) * int(visited(visits.mask, "kv", kind).sum())
                for heads, visits in found
                for kind in ("", "full_")
            )
        ]
        claim = card.cost("time", "flex", options)
        own = {letter: getattr(options, name) for letter, name in card.letters.items()} | {"n": n}
        claimed += [float(claim.subs({x: own.get(x.name, 1) for x in claim.free_symbols}))]
    # In a longer text fewer of the blocks drawn at random fall into one block of the kernel.
    grows = (computed[1] / computed[0]) / (claimed[1] / claimed[0])
    assert 0.8 < grows < 1.2


@pytest.mark.parametrize("sizes", ["self", "cached"])
@pytest.mark.parametrize(("card", "form", "variant"), KERNELS)
def test_kernel_equals_naive(card: Card, form: str, variant: int, sizes: str) -> None:
    """Values and gradients, under every mask, at lengths that do not divide into blocks."""
    n, m = {"self": (149, 149), "cached": (37, 149)}[sizes]
    some = Sizes(b=2, h=6, g=3, n=n, m=m, d=5, e=11)
    for mask in masks(card.forms["naive"], some):
        made = [x.requires_grad_() for x in inputs(card.forms["naive"], some, torch.float64)]
        expected = call(card, "naive", variant, made, mask)
        with computed_by_hand():
            every = dataclasses.replace(card, forms=card.every_form)
            out = call(every, form, variant, made, mask)
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        mine, theirs = gradients(out, made), gradients(expected, made)
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, while it traces
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # likewise
@pytest.mark.parametrize("index", [1, 3, 5, 7])
def test_the_operator_of_pytorch_gives_the_values_and_gradients(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without compilation, and in float64: there it differentiates on a CPU, too."""
    from torch.nn.attention import flex_attention as theirs

    monkeypatch.setattr(theirs, "_validate_device", lambda *_: None)
    pattern = PATTERNS[index] & p.padding(torch.arange(101) < torch.tensor([[101], [60]]))
    torch.manual_seed(0)
    made = [
        torch.randn(2, 2, length, 5, dtype=torch.float64, requires_grad=True)
        for length in (43, 101, 101)
    ]
    expected = naive(*made, mask=pattern)
    with computed_by_hand():
        monkeypatch.setattr(compiled, "_compiled", lambda: theirs.flex_attention)
        out = flex(*made, pattern)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        gradients(out, made), gradients(expected, made), rtol=1e-9, atol=1e-9
    )
    torch._dynamo.reset()


# ---- what is chosen


def there(n: int, width: int = 16, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return list(torch.empty(3, 1, 2, n, width, device="meta", dtype=dtype))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (there(4096, 8), "heads should be at least 16 wide, these are 8"),
        (there(4096, dtype=torch.float64), "it has no float64"),
    ],
)
def test_blocks_are_chosen_where_there_is_no_kernel(made: list[Tensor], words: str) -> None:
    found = choose(*made, p.local(64))
    assert found.form == "blocked"
    assert f"flex cannot run here: {words}" in found.why


def test_dropout_is_computed_by_blocks() -> None:
    found = choose(*there(4096), p.local(64), dropout=0.1)
    assert found.form == "blocked"
    assert "FlexAttention has no dropout" in found.why


# ---- where it cannot run


def test_a_gpu_that_triton_cannot_compile_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import _triton

    monkeypatch.setattr(_triton, "has_triton_package", lambda: False)
    said = compiled._refusal_of_a_gpu(torch.device("cuda"))
    assert said == "Triton is not installed, with which PyTorch compiles it (pip install triton)"
    monkeypatch.setattr(_triton, "has_triton_package", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    said = compiled._refusal_of_a_gpu(torch.device("cuda"))
    assert said == "Triton needs a GPU of compute capability 7.0, this one has 6.1"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert compiled._refusal_of_a_gpu(torch.device("cuda")) is None
    said = compiled._refusal_of_a_gpu(torch.device("mps"))
    assert said == "PyTorch compiles it for cuda, xpu and cpu, not for mps"


def test_a_kernel_asked_for_by_name_says_why_it_cannot_run() -> None:
    import attnlab

    layer = attnlab.build("longformer", dim=16, heads=2, window=4, form="flex")
    with pytest.raises(ValueError, match=r"flex cannot run here: heads .* 16 wide, these are 8"):
        layer(torch.randn(1, 7, 16))


def failing(*_: Any, **__: Any) -> Any:
    raise torch._dynamo.exc.TorchDynamoException("ptxas:\n fatal   error")


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name it is an error; where it was chosen, blocks run in its place, and it is told once."""
    monkeypatch.setattr(compiled, "_FAILED", {})
    for length in ("SHORT", "SHORT_GPU", "FULL_ROWS"):
        monkeypatch.setattr(choice, length, 64)
    pattern = p.local(3)
    made = [x.requires_grad_() for x in torch.randn(3, 2, 3, 301, 16)]
    with computed_by_hand():
        monkeypatch.setattr(compiled, "_compiled", lambda: failing)
        with pytest.raises(CannotCompile, match=r"could not compile it \(ptxas: fatal error\)"):
            flex(*made, pattern)
        assert "could not compile it" in (refusal(*made, pattern) or "")
        compiled._FAILED.clear()
        monkeypatch.setattr(choice, "on_cpu", lambda x: False)
        with record() as notes:
            with pytest.warns(UserWarning, match="use blocked, which runs in its place"):
                first = auto(*made, pattern)
            again = auto(*made, pattern)
    assert [each.form for each in notes["choice"]] == ["blocked", "blocked"]
    assert "could not compile it" in notes["choice"][1].why
    for out in (first, again):
        torch.testing.assert_close(out, naive(*made, mask=pattern), rtol=1e-5, atol=1e-5)


def test_other_errors_are_not_taken_for_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_FAILED", {})

    def out_of_memory(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("there is none left")

    made = torch.randn(3, 1, 1, 7, 16)
    with computed_by_hand():
        monkeypatch.setattr(compiled, "_compiled", lambda: out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            flex(*made, p.full())
    assert not compiled._FAILED
