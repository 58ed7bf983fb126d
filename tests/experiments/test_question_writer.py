"""Question writer: no model learns from facts, and what is written is read to its end."""

import pytest
import torch

from attnlab.experiments import question_writer, stored
from attnlab.experiments.grid import SEEDS
from attnlab.experiments.question_writer import (
    ANSWERS,
    FACTS,
    MAY_REFUSE,
    READERS,
    REFUSES,
    WRITER,
    MadeUp,
    encoded,
    speaking,
    words,
)
from attnlab.models import t5


def row_of(read: str) -> tuple[str, ...]:
    return tuple(part.split(" : ")[1] for part in read.split("context: ")[1].split(" * "))


@pytest.mark.parametrize("whose", [WRITER, *READERS])
def test_no_row_that_is_learned_from_is_a_fact(whose: str) -> None:
    for split in ("train", "validation"):
        for read, _ in MadeUp(whose).texts(split, 500, 3):
            assert row_of(read) not in FACTS.rows


def test_the_writer_learns_to_ask_for_the_answer_that_it_reads() -> None:
    for read, question in MadeUp(WRITER).texts("train", 200, 0):
        row = row_of(read)
        answer = read.removeprefix("question answer: ").split(" context:")[0]
        (column,) = (
            name
            for name, phrases in FACTS.phrases.items()
            if question in [phrase.format(row[0]) for phrase in phrases]
        )
        assert row[FACTS.header.index(column)] == answer


def test_only_one_reader_learns_to_refuse() -> None:
    for whose, least, most in ((ANSWERS, 0, 0), (MAY_REFUSE, 0.25, 0.4)):
        pairs = MadeUp(whose).texts("train", 1000, 0)
        for read, said in pairs:
            question = read.removeprefix("answer question: ").split(" context:")[0]
            ways = [phrase for phrases in FACTS.phrases.values() for phrase in phrases]
            named = question in [phrase.format(row_of(read)[0]) for phrase in ways]
            assert named == (said != REFUSES)
        share = sum(said == REFUSES for _, said in pairs) / len(pairs)
        assert least <= share <= most


def test_every_text_can_be_encoded_and_the_longest_is_read_whole() -> None:
    for whose in (WRITER, *READERS):
        for read, said in MadeUp(whose).texts("validation", 200, 1):
            assert " ".join(words()[token] for token in encoded(read)) == read
            assert len(encoded(read)) < question_writer.SIZES.max_len
            assert len(encoded(said)) <= question_writer.LONGEST


def test_what_is_written_ends_at_the_end_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts of different lengths are read; after the end of an answer more words follow."""
    ids = question_writer.Ids.of(len(words()), question_writer._objective().options)
    said = [*encoded("how long is def"), ids.end, *encoded("def is")]
    texts = ["question answer: 3", "question answer: 3 context: word : def"]

    def written(model, tokens, steps, *, temperature, source, source_padding):  # type: ignore[no-untyped-def]
        assert (tokens == ids.start).all()
        assert (steps, temperature) == (question_writer.LONGEST, 0.0)
        for row, real, text in zip(source, source_padding, texts, strict=True):
            assert row[real].tolist() == [*encoded(text), ids.end]
        return torch.cat([tokens, torch.tensor([said, said])], dim=1)

    monkeypatch.setattr(question_writer, "generate", written)
    assert (
        speaking(t5.build(len(words()) + 3, question_writer.SIZES))(texts)
        == ["how long is def"] * 2
    )


def test_what_the_stored_rows_say_of_the_filter() -> None:
    rows = stored("65_question_writer.json", "question_writer")

    def mean(arm: str, what: str) -> float:
        return sum(rows[f"{arm}, {what}, seed {seed}"] for seed in SEEDS) / len(SEEDS)

    for step in question_writer.AFTER:
        bare = f"writer, step {step}, no filter"
        for reader in READERS:
            kept = f"writer, step {step}, {reader}"
            assert mean(kept, "yield") <= mean(bare, "yield")
    early = f"writer, step {question_writer.AFTER[0]}"
    precise = [mean(f"{early}, {each}", "precision") for each in ("no filter", *READERS)]
    assert precise == sorted(precise)
    about_another = "refuses a question about another row"
    assert mean(ANSWERS, about_another) == 0 < mean(MAY_REFUSE, about_another)
    for reader in READERS:
        assert mean(reader, "answers rightly") > 95
