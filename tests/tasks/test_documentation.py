"""The text differs from one Python version to the next, so nothing here knows a word of it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from attnlab.tasks import documentation
from attnlab.tasks.documentation import Documentation, families, topics_by_split, word_runs

HOSTILE = [
    "plain",
    " ",
    "\n\n\t\r\n",
    "naïve café, cafe\u0301",
    "🎉👩\u200d👩\u200d👧 flags 🇩🇪",
    "שלום \u202eevil\u202c مرحبا",
    "nul \0 and \x7f",
    "zero\u200bwidth\ufeffmark",
    "\U0010ffff",
    "ĠĊ the letters of byte-level BPE themselves",
    "<|endoftext|> <s> [MASK]",
    "long " * 999,
]


@pytest.fixture(scope="module", params=["bytes", "bpe"])
def text_task(request):
    return Documentation(unit=request.param, length=31)


@pytest.fixture(scope="module")
def small_bpe():
    return Documentation(unit="bpe", length=31, bpe_size=300)


# The split


def test_every_topic_is_in_one_split():
    from pydoc_data.topics import topics

    split = topics_by_split()
    assert split["train"].keys().isdisjoint(split["validation"])
    assert split["train"] | split["validation"] == topics


def test_validation_is_nearly_a_tenth_of_the_text():
    size = {split: sum(map(len, topics.values())) for split, topics in topics_by_split().items()}
    assert 0.08 < size["validation"] / sum(size.values()) <= 0.1


def test_no_validation_topic_is_contained_in_the_training_text():
    def plain(text: str) -> str:
        return " ".join(text.split())

    split = topics_by_split()
    training = plain(" ".join(split["train"].values()))
    assert [name for name, text in split["validation"].items() if plain(text) in training] == []


def test_no_twelve_words_of_the_validation_text_are_in_the_training_text():
    def runs(split: str) -> set[tuple[str, ...]]:
        words = [text.split() for text in topics_by_split()[split].values()]
        return {tuple(w[i : i + 12]) for w in words for i in range(len(w) - 11)}

    train, validation = runs("train"), runs("validation")
    assert len(validation) > 1000
    assert train.isdisjoint(validation)


def test_families_by_hand():
    words = [f"w{i}" for i in range(40)]
    topics = {
        "b": " ".join(words[:20]),
        "a": " ".join(words[8:30]),  # shares 12 words with b
        "c": "x " + " ".join(words[18:40]),  # shares 12 with a, none with b
        "d": " ".join(words[:11]),  # only 11 with b
        "e": "something else",
        "f": "something\nelse",
    }
    assert sorted(families(topics)) == [["a", "b", "c"], ["d"], ["e", "f"]]
    assert word_runs("one two") == {("one", "two")}


# Batches


@pytest.mark.parametrize("split", ["train", "validation"])
def test_windows_come_from_their_own_split(text_task, split):
    tokens = documentation._tokens_of_split(text_task.vocabulary, split)
    text = np.concatenate([[text_task.vocab], tokens]).astype(np.int64).tobytes()
    batch = text_task.batch(split, 17, seed=0)
    for inputs, target in zip(batch.inputs, batch.targets[:, -1:], strict=True):
        assert torch.cat([inputs, target]).numpy().tobytes() in text


def test_every_target_is_the_next_token(text_task):
    batch = text_task.batch("train", 17, seed=0)
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    assert batch.targets.shape == (17, 31)


def test_the_longest_window_is_the_whole_validation_text(text_task):
    most = len(documentation._tokens_of_split(text_task.vocabulary, "validation")) - 1
    longest = Documentation(unit=text_task.unit, length=most)
    assert longest.batch("validation", 2, seed=0).inputs.shape == (2, most)
    with pytest.raises(ValueError, match=f"length should be at most {most}, .*, got {most + 1}"):
        Documentation(unit=text_task.unit, length=most + 1)


# Text and tokens


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_decoding_gives_the_text_back(text_task, text):
    ids = text_task.encode(text)
    assert ids.dtype == torch.int64
    assert ids.dim() == 1
    assert 0 <= ids.min() <= ids.max() < text_task.vocab
    assert text_task.decode(ids) == text


@settings(max_examples=100, deadline=None)
@given(some.text(some.characters(exclude_categories=["Cs"]), min_size=1))
def test_decoding_gives_any_text_back(text):
    for task in (Documentation(), Documentation(unit="bpe", bpe_size=300)):
        assert task.decode(task.encode(text)) == text


def test_bytes_are_the_bytes_of_utf8():
    assert Documentation().encode("aé").tolist() == [0x61, 0xC3, 0xA9]


def test_bpe_needs_fewer_tokens_and_has_as_many_pieces_as_asked(small_bpe):
    text = next(iter(topics_by_split()["validation"].values()))
    assert len(small_bpe.encode(text)) < 0.9 * len(Documentation().encode(text))
    assert (
        small_bpe.vocab
        == 300
        == len(json.loads(small_bpe.vocabulary)["tokenizer"]["model"]["vocab"])
    )


def test_a_text_longer_than_a_window_is_not_cut(text_task):
    assert len(text_task.encode("q!" * 500)) > text_task.length


def test_an_empty_text_is_refused(text_task):
    with pytest.raises(ValueError, match="The text is empty"):
        text_task.encode("")
    with pytest.raises(TypeError, match="encode takes a str, got b'bytes', a bytes"):
        text_task.encode(b"bytes")


def test_half_a_surrogate_pair_is_refused(text_task):
    with pytest.raises(ValueError, match="Character 2 of the text is half a surrogate pair"):
        text_task.encode("ab\ud800")


def test_tokens_that_are_no_text_show_as_such(text_task):
    lone = text_task.encode("é")[:1] if text_task.unit == "bytes" else None
    broken = [0xC3] if lone is not None else [_token_of_byte(text_task, 0xC3)]
    assert text_task.decode(broken) == "\ufffd"
    assert text_task.tokens(broken) == ["\\xc3"]
    assert text_task.decode([]) == ""


def test_tokens_out_of_range_are_refused(text_task):
    for token in (-1, text_task.vocab):
        with pytest.raises(ValueError, match=f"from 0 to {text_task.vocab - 1}, got {token}"):
            text_task.decode([token])


def test_what_cannot_be_seen_is_shown():
    task = Documentation()
    assert task.tokens(task.encode("a \n\t\0~")) == ["a", "␣", "⏎", "⇥", "\\x00", "~"]
    assert documentation._visible("\u200bש\u202e".encode()) == "\\u200bש\\u202e"


def _token_of_byte(task: Documentation, byte: int) -> int:
    return documentation._pieces_of(task.vocabulary).index(bytes([byte]))


# Vocabularies


def test_every_byte_has_a_piece(small_bpe):
    pieces = documentation._pieces_of(small_bpe.vocabulary)
    assert {bytes([byte]) for byte in range(256)} <= set(pieces)
    assert len(set(pieces)) == 300


def test_a_carried_vocabulary_encodes_as_before(text_task):
    carried = Documentation.from_vocabulary(text_task.vocabulary, length=31)
    assert carried == text_task
    assert carried.encode("for x in y:").tolist() == text_task.encode("for x in y:").tolist()


def test_a_vocabulary_from_another_text_is_used_as_it_is(small_bpe):
    # As if it came from another Python: two pieces have changed places.
    carried = json.loads(small_bpe.vocabulary)
    pieces = carried["tokenizer"]["model"]["vocab"]
    pieces["a"], pieces["b"] = pieces["b"], pieces["a"]
    other = Documentation.from_vocabulary(json.dumps(carried), length=31)
    assert other.encode("ab~").tolist() != small_bpe.encode("ab~").tolist()
    assert other.decode(other.encode("ab~")) == "ab~"
    assert other.batch("train", 2, seed=0).inputs.shape == (2, 31)


def test_training_bpe_is_deterministic(small_bpe):
    program = (
        "from attnlab.tasks import task; import hashlib;"
        "v = task('documentation', unit='bpe', bpe_size=300).vocabulary;"
        "print(hashlib.sha256(v.encode()).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
        ).stdout
        for seed, threads in (("1", "1"), ("2", "3"))
    }
    ours = documentation.sha256(small_bpe.vocabulary.encode()).hexdigest()
    assert {line.strip() for line in hashes} == {ours}


@pytest.mark.parametrize(
    "vocabulary",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"unit": "words", "size": 300}',
        '{"unit": "bpe", "size": 300}',
        '{"unit": "bpe", "size": 300, "tokenizer": {"model": 3}}',
    ],
)
def test_a_vocabulary_that_is_none_is_refused(vocabulary):
    with pytest.raises(ValueError, match="The vocabulary is not one that Documentation wrote"):
        Documentation.from_vocabulary(vocabulary)


def test_a_vocabulary_that_lacks_pieces_is_refused(small_bpe):
    carried = json.loads(small_bpe.vocabulary)
    with pytest.raises(ValueError, match="or not all of it"):
        Documentation.from_vocabulary(json.dumps({**carried, "size": 299}))
    model = carried["tokenizer"]["model"]
    model["merges"] = []
    model["vocab"] = {f"odd{i}": i for i in range(300)}
    with pytest.raises(ValueError, match="or not all of it"):
        Documentation.from_vocabulary(json.dumps(carried))
    with pytest.raises(TypeError, match=r"takes the JSON text of `task.vocabulary`, got a dict"):
        Documentation.from_vocabulary(carried)


def test_a_vocabulary_must_fit_the_options(small_bpe):
    with pytest.raises(ValueError, match=r"holds 300 tokens of 'bpe'.*256 of 'bytes'"):
        Documentation(unit="bytes", vocabulary=small_bpe.vocabulary)
    with pytest.raises(ValueError, match=r"holds 300 tokens of 'bpe'.*400 of 'bpe'"):
        Documentation(unit="bpe", bpe_size=400, vocabulary=small_bpe.vocabulary)


# Options


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="length should be at least 2, got 1"):
        Documentation(length=1)
    with pytest.raises(ValueError, match="bpe_size=300 has no effect with unit='bytes'"):
        Documentation(bpe_size=300)
    with pytest.raises(ValueError, match=r"bpe_size should be at least 257, got 256"):
        Documentation(unit="bpe", bpe_size=256)
    with pytest.raises(ValueError, match="no unit 'words'; known: bytes, bpe"):
        Documentation(unit="words")


def test_more_pieces_than_the_text_holds_are_refused(monkeypatch):
    short = {"train": {"a": "ab ab ab"}, "validation": {"b": "x"}}
    monkeypatch.setattr(documentation, "topics_by_split", lambda: short)
    with pytest.raises(ValueError, match=r"bpe_size should be at most 258, .*, got 299"):
        documentation._trained_bpe(299)


def test_without_the_documentation_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ImportError, match="came without pydoc_data"):
        documentation._topics()
