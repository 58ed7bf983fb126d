"""Bytes as tokens: ids, round trips and broken text (identity U5), Hugging Face's tokenizer,
published numbers of parameters, and what is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.mechanisms.positions.byte_embedding import (
    FORMS,
    ByteEmbedding,
    ByteEmbeddingOptions,
    batch,
    decode,
    encode,
    sentinel,
)

TEXTS = ("hello", "", "naïve café", "Ελλάδα", "日本語", "🙂 ok", "tab\tand\x00nul", "</s> <pad>")
by_form = pytest.mark.parametrize("form", FORMS)


def test_hello() -> None:
    assert encode("hello") == [107, 104, 111, 111, 114, 1]
    assert encode("hello", end=False) == [107, 104, 111, 111, 114]
    assert encode(b"\x00\xff") == [3, 258, 1]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    ids = encode(text)
    assert decode(ids) == text
    assert all(3 <= number <= 258 for number in ids[:-1])
    assert ids[-1] == 1


@given(st.lists(st.integers(-5, 500)))
def test_any_ids_can_be_read(ids: list[int]) -> None:
    """And a text has no more bytes than there were ids of bytes."""
    assert len(encode(decode(ids), end=False)) <= sum(3 <= number < 259 for number in ids)


def test_what_is_no_text_is_left_out() -> None:
    assert decode([0, 107, 2, 259, 383, 104, 1]) == "he"
    assert decode([*encode("é", end=False)[:1], *encode("a")]) == "a"  # half a character
    assert decode(torch.tensor(encode("日本"))) == "日本"
    assert decode([]) == ""


@pytest.mark.parametrize(("letter", "size"), [("e", 1), ("é", 2), ("д", 2), ("λ", 2), ("語", 3)])
def test_bytes_per_letter(letter: str, size: int) -> None:
    assert len(encode(letter, end=False)) == size


def test_a_batch_is_filled_up_with_zeros() -> None:
    tokens, padding = batch(["hello", "a", ""])
    assert tokens.tolist() == [encode("hello"), [100, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert torch.equal(padding, tokens != 0)
    tokens, padding = batch(["é", ""], end=False)
    assert padding.tolist() == [[True, True], [False, False]]
    assert [decode(row) for row in tokens] == ["é", ""]


def test_sentinels_count_down_from_the_top() -> None:
    assert [sentinel(index) for index in (0, 1, 255)] == [258, 257, 3]
    used = {number for code in (*range(0xD800), *range(0xE000, 0x110000, 7)) for number in
            encode(chr(code), end=False)}  # fmt: skip
    assert [index for index in range(12) if sentinel(index) in used] == [11]


def test_hugging_face_writes_and_reads_the_same() -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    theirs = transformers.ByT5Tokenizer()
    assert len(theirs) == 384
    for text in TEXTS[:-1]:
        ids = encode(text)
        assert theirs(text).input_ids == ids
        assert theirs.decode(ids, skip_special_tokens=True) == decode(ids) == text
    for broken in ([258, 107, 104, 233, 111, 1], [107, 104, 229, 133, 1], [0, 2, 300, 107, 383]):
        assert theirs.decode(broken, skip_special_tokens=True) == decode(broken)
    tokens, padding = batch(TEXTS[:-1])
    filled = theirs(list(TEXTS[:-1]), padding=True)
    assert filled.input_ids == tokens.tolist()
    assert filled.attention_mask == padding.long().tolist()
    assert theirs(TEXTS[-1]).input_ids != encode(TEXTS[-1])  # as the page says


# ---- the table


@by_form
def test_vectors_are_rows_of_the_table(form: str) -> None:
    layer = ByteEmbedding(5, form=form, options=ByteEmbeddingOptions(rows=263)).double()
    tokens, _ = batch(TEXTS)
    out = layer(tokens)
    torch.testing.assert_close(out, layer.table[tokens])
    (grad,) = torch.autograd.grad(out.sum(), layer.table)
    torch.testing.assert_close(grad[:, 0], tokens.flatten().bincount(minlength=263).double())


@pytest.mark.parametrize(
    ("dim", "hidden", "heads", "depth", "expected"),
    [
        (1472, 3584, 6, 4, 299_637_760),
        (1536, 3968, 12, 6, 581_653_248),
        (1536, 3840, 16, 12, 1_228_183_552),
        (2560, 6720, 32, 12, 3_737_801_728),
        (4672, 12352, 64, 12, 12_906_899_328),
    ],
    ids=["small", "base", "large", "XL", "XXL"],
)
def test_parameters_of_the_published_models(
    dim: int, hidden: int, heads: int, depth: int, expected: int
) -> None:
    """T5 v1.1: gated feed-forward, norms without shift, heads of 64, and no biases; an encoder
    three times as deep as the decoder, and an output table of its own."""
    with torch.device("meta"):
        table = ByteEmbedding(dim).table.numel()
    attention, forward = 4 * dim * 64 * heads, 3 * dim * hidden
    encoder = 3 * depth * (attention + forward + 2 * dim) + dim
    decoder = depth * (2 * attention + forward + 3 * dim) + dim
    distances = 2 * 32 * heads
    assert 2 * table + encoder + decoder + distances == expected


# ---- refusals


@by_form
@pytest.mark.parametrize("wrong", [384, -1])
def test_an_id_beyond_the_table_is_refused(form: str, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"tokens should lie in 0 … 383, .*; {wrong} does not"):
        ByteEmbedding(5, form=form)(torch.tensor([[3, wrong]]))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: encode(3), TypeError, "a text or bytes, got a int"),
        (lambda: encode(None), TypeError, "a text or bytes, got a NoneType"),
        (lambda: encode("ab\ud800"), ValueError, "character 2 .* half a surrogate pair"),
        (lambda: batch("hello"), TypeError, r"a list of texts, got a str; \[text\] is one"),
        (lambda: batch(3), TypeError, "a list of texts, got a int"),
        (lambda: batch([]), ValueError, "no text that has a byte"),
        (lambda: batch(["", ""], end=False), ValueError, "no text that has a byte"),
        (lambda: batch(["a", 3]), TypeError, "a text or bytes, got a int"),
        (lambda: decode("hello"), TypeError, "a row of ids, got a str"),
        (lambda: decode(3), TypeError, "a row of ids, got a int"),
        (lambda: decode([1.5]), TypeError, "an id should be a whole number, got 1.5"),
        (lambda: decode(torch.ones(3)), TypeError, r"whole numbers, .* float32 of shape \(3,\)"),
        (lambda: decode(torch.ones(2, 3).long()), TypeError, r"int64 of shape \(2, 3\)"),
        (lambda: sentinel(256), ValueError, "there is no number 256"),
        (lambda: sentinel(-1), ValueError, "index should be at least 0, got -1"),
        (
            lambda: ByteEmbeddingOptions(rows=258),
            ValueError,
            "rows should be at least 259, .* got 258",
        ),
        (lambda: ByteEmbedding(5)(torch.ones(2, 3)), ValueError, r"`tokens` should be Int\[b n\]"),
        (lambda: ByteEmbedding(5)("hello"), TypeError, "`tokens` should be .*, got a str"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()
