"""Attention over a pattern: by blocks, by FlexAttention, and by choice, against the dense mask."""

import shutil
import warnings

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.core import patterns as p
from attnlab.core.patterns import Pattern
from attnlab.core.probe import record
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as engine
from attnlab.core.sparse.auto import auto, choose
from attnlab.core.sparse.blocked import blocked
from attnlab.core.sparse.flex import _by_group, flex, refusal
from attnlab.core.sparse.layout import Batch, Steps, forget, layout

PATTERNS = [
    p.local(3),
    (p.local(2) | p.strided(5)).causal(),  # two orders, met by log-sum-exp
    p.fixed(7, 2).causal(),
    p.global_([0, 5, -1]) | p.local(1),
    (p.local(1) | p.random(1) | p.global_([0])).blocks(8),
    p.per_head(p.local(1), p.strided(3).causal()),
    p.summaries(9, 1).causal(),  # the first rows see nothing
    (p.local(2) | p.strided(5)).causal() & ~p.places([3, 64], of="row"),  # in two orders, nothing
    ~p.full(),
    p.full(),
    p.document(torch.arange(101) // 40),  # blocks inside one document
    p.document(torch.arange(101) // torch.tensor([[7], [13]])),
]
NAMES = [str(pattern)[:40] for pattern in PATTERNS]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}


def inputs(n: int, m: int, e: int = 16, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(2, 2, n, 16), (2, 2, m, 16), (2, 2, m, e)]
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def dense(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern) -> Tensor:
    mask = pattern.dense(q.shape[-2], k.shape[-2])
    return masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, mask) @ v


@pytest.mark.parametrize("e", [16, 11], ids=["kernel", "equation"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_blocked_equals_the_dense_mask(pattern: Pattern, dtype: torch.dtype, e: int) -> None:
    for n, block in ((101, None), (43, 16)):
        made = inputs(n, 101, e, dtype)
        exact = [x.detach().double().requires_grad_() for x in made]
        out, expected = (
            blocked(*made, pattern, block=block, allow_fully_masked=True),
            dense(*exact, pattern),
        )
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        direction = torch.randn_like(expected)
        grads = torch.autograd.grad((out * direction.to(dtype)).sum(), made)
        wanted = torch.autograd.grad((expected * direction).sum(), exact)
        for mine, theirs in zip(grads, wanted, strict=True):
            close = tolerance * max(1.0, theirs.abs().max().item())
            torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=close)


@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_padding_is_honoured(pattern: Pattern) -> None:
    torch.manual_seed(1)
    padded = pattern & p.padding(torch.rand(2, 101) > 0.5)
    made = inputs(101, 101)
    torch.testing.assert_close(
        blocked(*made, padded, allow_fully_masked=True), dense(*made, padded)
    )


@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_the_log_sum_exp_is_noted(pattern: Pattern) -> None:
    q, k, v = (x.detach() for x in inputs(101, 101))
    with record() as notes:
        blocked(q, k, v, pattern, allow_fully_masked=True)
    scores = (q @ k.mT / 4).masked_fill(~pattern.dense(101), -torch.inf)
    expected = torch.logsumexp(scores, dim=-1)
    expected = expected.masked_fill(expected == -torch.inf, torch.inf)  # a row that sees nothing
    torch.testing.assert_close(notes.last("log_sum_exp"), expected)


@pytest.mark.parametrize("e", [16, 11], ids=["kernel", "equation"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_pieces_do_not_show(pattern: Pattern, e: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that are gathered a few at a time keep their own masks, queries and keys."""
    made = inputs(101, 101, e)
    padded = pattern & p.padding(torch.arange(101) < torch.tensor([[101], [97]]))
    wanted = dense(*made, padded)
    direction = torch.randn_like(wanted)
    wanted_grads = torch.autograd.grad(wanted, made, direction)
    for bytes_at_once in (1, 30_000):  # one block; some
        monkeypatch.setitem(engine.PIECE, "cpu", bytes_at_once)
        out = blocked(*made, padded, block=8, allow_fully_masked=True)
        torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
        grads = torch.autograd.grad(out, made, direction)
        torch.testing.assert_close(grads, wanted_grads, rtol=1e-10, atol=1e-10)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (x.detach() for x in inputs(101, 101, dtype=torch.float32))
    made = (q * 200, k * 200, v)
    assert torch.isfinite(blocked(*made, PATTERNS[1])).all()
    torch.testing.assert_close(blocked(*made, PATTERNS[1]), dense(*made, PATTERNS[1]))


def test_dropout_drops_weights_in_training() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 97, 16, dtype=torch.float64).requires_grad_()
    pattern = (p.local(4) | p.strided(3)).causal()
    weights = blocked(q, k, torch.eye(97, dtype=torch.float64).expand(1, 2, 97, 97), pattern)
    one = torch.eye(97, dtype=torch.float64).expand(1, 2, 97, 97)
    dropped = blocked(q, k, one, pattern, dropout=0.25)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / 0.75)[kept])
    share = kept.sum() / (weights != 0).sum()
    assert 0.72 < share < 0.78
    torch.manual_seed(5)
    (first,) = torch.autograd.grad((blocked(q, k, one, pattern, dropout=0.25) * one).sum(), k)
    torch.manual_seed(5)
    once = blocked(q, k, one, pattern, dropout=0.25)
    keep = (once != 0) / 0.75
    again = dense(q, k, one, pattern) * keep
    (wanted,) = torch.autograd.grad((again * one).sum(), k)
    torch.testing.assert_close(first, wanted)


def test_layouts_are_remembered_and_small() -> None:
    n = 4096
    laid = layout(p.local(64), n, n)
    assert laid is layout(p.local(64), n, n)
    assert laid.pairs < 2 * p.local(64).count(n)
    assert sum(b.mask.numel() for part in laid.parts for b in part if b.mask is not None) < n * 64
    strided = (p.local(64) | p.strided(64)).causal()
    assert len(layout(strided, n, n).parts) == 2
    assert layout(strided, n, n).pairs < 2 * strided.count(n)
    bigbird = (p.local(1) | p.random(3) | p.global_([0, -1])).blocks(64)
    assert layout(bigbird, n, n).pairs < 1.1 * bigbird.count(n)
    fixed = p.fixed(64, 1).causal()
    assert layout(fixed, n, n).pairs < 3 * fixed.count(n)


@pytest.mark.parametrize(
    "steps",
    [
        Steps(5, 3, 1),  # windows that overlap
        Steps(0, 11, 1),  # apart
        Steps(7, 0, 1),  # the same keys for every block
        Steps(2, 1, 13),  # residues
        Steps(1, 7, 2),  # every second position, overlapping
        Steps(3, 2, 5),  # a step between blocks that is shorter than that between places
    ],
    ids=str,
)
def test_positions_at_constant_steps_are_read_and_added_to_in_place(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, place = torch.arange(5)[:, None], torch.arange(7)
    positions = steps.first + steps.block * block + steps.place * place
    assert Steps.of(positions) == steps
    assert Steps.of(positions.flip(1)) is None  # backwards
    assert Steps.of(torch.cat([positions, positions[-1:] + 50])) is None
    x = torch.randn(3, 2, 103, 4).transpose(1, 2)[:, :, 1]  # (3, 103, 4), not contiguous
    batch = Batch(positions, positions, None, steps, steps)
    read = x[:, positions]
    assert torch.equal(batch.take_keys(x), read)
    assert torch.equal(batch.take_queries(x), read)
    assert batch.take_keys(x).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    values = torch.randn_like(read)
    expected = x.index_add(1, positions.flatten(), values.flatten(1, 2))
    view = Steps.view

    def of_different_rows(self: Steps, x: Tensor, blocks: int, places: int) -> Tensor:
        rows = view(self, torch.arange(x.shape[1])[None], blocks, places)
        assert len(rows.unique()) == rows.numel()  # else threads would add to the same row
        return view(self, x, blocks, places)

    monkeypatch.setattr(Steps, "view", of_different_rows)
    batch.add_keys(x, values)
    torch.testing.assert_close(x, expected)


def test_windows_blocks_and_residues_need_no_gathering() -> None:
    n = 1024
    patterns = [
        p.local(3),
        p.local(128),
        p.local(128).causal(),
        p.local(1).blocks(64),
        p.local(0).blocks(64),
        (p.local(64) | p.strided(64)).causal(),
        p.prefix(100),
    ]
    for pattern in patterns:
        batches = [batch for part in layout(pattern, n, n).parts for batch in part]
        gathered = sum(b.keys.numel() for b in batches if b.key_steps is None)
        assert gathered <= 0.05 * layout(pattern, n, n).gathered, pattern
    assert len(layout(p.local(128), n, n).parts) == 1


def test_nothing_of_the_size_of_all_pairs_is_made() -> None:
    from attnlab.measure.count import count

    n = 4096
    q, k, v = torch.randn(3, 1, 1, n, 16).requires_grad_().unbind()
    for pattern in (p.local(16), (p.local(64) | p.strided(64)).causal()):
        forget()
        laid = count(layout, pattern, n, n)
        assert laid.largest_tensor.elements < n * n / 4
        run = count(blocked, q, k, v, pattern, backward=True)
        # A piece holds the weights of some blocks and their gradients, in four bytes each.
        assert run.largest_tensor.elements <= engine.PIECE["cpu"] // 8 < n * n / 16


def test_wrong_calls_are_answered_in_sentences() -> None:
    made = inputs(7, 7)
    with pytest.raises(ValueError, match="dropout is a probability below 1"):
        blocked(*made, p.local(1), dropout=1.0)
    with pytest.raises(ValueError, match="block should be at least 1, got 0"):
        blocked(*made, p.local(1), block=0)
    with pytest.raises(ValueError, match="for 3 heads, but there are 2"):
        blocked(*made, p.per_head(p.local(1), p.full(), p.full()))
    with pytest.raises(ValueError, match="padding is for 5 keys"):
        blocked(*made, p.local(1) & p.padding(torch.ones(2, 5, dtype=torch.bool)))


# ---- flex


VECTORS = torch.backends.cpu.get_cpu_capability() != "DEFAULT"


@pytest.mark.skipif(not (VECTORS and shutil.which("g++")), reason="no C++ compiler, or no AVX2")
def test_flex_equals_the_dense_mask() -> None:
    pattern = p.per_head((p.local(40) | p.strided(64)).causal(), p.global_([7, -1]) & p.prefix(99))
    pattern = pattern & p.padding(torch.arange(300) < torch.tensor([[300], [150]]))
    q, k, v = (x.detach().float() for x in inputs(200, 300))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        out = flex(q, k, v, pattern)
    torch.testing.assert_close(out, dense(q, k, v, pattern), rtol=1e-5, atol=1e-5)


class StaysThere(TorchDispatchMode):
    """Refuses to move a tensor: the kernel of a GPU cannot fetch a table from elsewhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._to_copy.default, "a table is moved"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pattern", PATTERNS, ids=NAMES)
def test_a_pattern_there_looks_up_nothing_here(pattern: Pattern) -> None:
    sized = pattern.sized(101)
    there = sized.to(torch.device("meta"))
    place = torch.arange(101, device="meta")
    i, j = place[:, None], place[None]
    with StaysThere():
        assert there.allows(i, j).is_meta
    i, j = torch.arange(101)[:, None], torch.arange(101)[None]
    assert torch.equal(sized.to(torch.device("cpu")).allows(i, j), sized.allows(i, j))


def test_flex_prepares_a_pattern_once() -> None:
    """Also one that holds a table; only the padding is new at each call."""
    pattern, cpu = p.document(torch.arange(64) // 16), torch.device("cpu")
    first, again = (_by_group(pattern, 64, 64, 2, True, cpu) for _ in range(2))
    assert first[0][1] is again[0][1]
    valid = torch.arange(64)[None] < 40
    i, j = torch.arange(64)[:, None], torch.arange(64)
    zero = torch.zeros((), dtype=torch.long)
    allowed = first[0][1].under(valid).mask_mod(zero, zero, i, j)
    assert torch.equal(allowed, (i // 16 == j // 16) & (j < 40))
    assert torch.equal(first[0][1].mask.mask_mod(zero, zero, i, j), i // 16 == j // 16)


def test_flex_says_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = inputs(7, 7, dtype=torch.float32)
    assert "computes no gradients" in (refusal(q, k, v) or "")
    with torch.no_grad():
        assert "at least 16 wide, these are 8" in (refusal(q[..., :8], k[..., :8], v) or "")
        assert "float64" in (refusal(q.double(), k.double(), v.double()) or "")
        for capability, reason in (("DEFAULT", "without AVX2"), ("AVX2", "no C++ compiler")):
            monkeypatch.setattr(shutil, "which", lambda name, of=capability: of == "DEFAULT")
            monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda of=capability: of)
            assert reason in (refusal(q, k, v) or "")
        with pytest.raises(ValueError, match=r"flex cannot run here: .* use blocked"):
            flex(q, k, v, p.local(1))


# ---- auto


@pytest.mark.parametrize(
    ("n", "pattern", "form", "words"),
    [
        (64, p.local(2), "dense", "64 keys are few"),
        (2048, p.local(2), "blocked", "on a CPU it also computes gradients"),
        (2048, p.causal(), "dense", "about 2 times"),
        (2048, p.local(1024), "dense", "about 2 times"),
    ],
)
def test_auto_chooses_and_says_why(n: int, pattern: Pattern, form: str, words: str) -> None:
    q, k, v = torch.randn(3, 1, 2, n, 16)
    choice = choose(q, k, v, pattern)
    assert choice.form == form
    assert words in str(choice)
    with record() as notes:
        out = auto(q, k, v, pattern)
    assert notes["choice"] == [choice]
    torch.testing.assert_close(out, dense(q, k, v, pattern), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("n", "pattern", "form", "words"),
    [
        (2048, p.local(64), "dense", "2048 keys are few"),
        (4096, p.local(64), "flex", "a compiled kernel"),
        (4096, p.local(64) | p.global_([0]), "dense", "one after the other, and some see all"),
        (4096, (p.local(64) | p.global_([0])) & p.causal(), "flex", "a compiled kernel"),
        (16_384, p.local(64) | p.global_([0]), "flex", "a compiled kernel"),
        (16_384, p.local(128) | p.dilated(128, 128), "blocked", "FlexAttention visits 100.0%, at"),
        (16_384, p.causal() & p.dilated(512, 128), "blocked", "FlexAttention visits 50.4%, at"),
        (16_384, p.causal() & (p.local(512) | p.dilated(32, 512)), "flex", "a compiled kernel"),
    ],
)
def test_auto_chooses_by_what_a_gpu_takes(n: int, pattern: Pattern, form: str, words: str) -> None:
    q, k, v = torch.empty(3, 1, 2, n, 16, device="meta")
    choice = choose(q, k, v, pattern)
    assert choice.form == form
    assert words in str(choice)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:query .* attends to nothing")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # likewise
@pytest.mark.parametrize("pattern", PATTERNS[:-1], ids=NAMES[:-1])
def test_on_the_gpu(pattern: Pattern, accelerator: torch.device) -> None:
    made = [x.detach().float() for x in inputs(101, 101)]
    expected = dense(*made, pattern)
    there = [x.to(accelerator).requires_grad_() for x in made]
    for form in (blocked, flex, auto):
        padded = pattern & p.padding(torch.ones(2, 101, dtype=torch.bool))  # on the CPU
        for seen in (pattern, padded):
            out = form(*there, seen)
            torch.testing.assert_close(out.cpu(), expected, rtol=1e-3, atol=1e-3)
            out.sum().backward()
