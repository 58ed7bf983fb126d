"""Real text: the Python documentation that comes with every CPython.

`pydoc_data.topics` holds what `help("for")` prints: some eighty topics, nearly half a million
characters of English with code in it, on every machine and without a network. The text differs a
little from one Python version to the next, and so do the samples, the BPE pieces and every loss.
Therefore weights that are shipped carry their own vocabulary (`vocabulary`, `from_vocabulary`).

**The split is by family of topics.** Many topics repeat others word for word ("specialnames"
contains all of "customization" and "attribute-access", "compound" all of "for", "if" and "try"),
so that with a split by topic the model would be trained on validation text. Topics that share any
run of twelve words form a family, and a family is never divided: no run of twelve words of the
validation text occurs in the training text. Families are taken for validation in the order of a
hash of their first topic's name, as long as they fit into a tenth of the text.

Bytes are 256 tokens, one per byte of UTF-8. BPE is byte-level byte-pair encoding (R. Sennrich,
B. Haddow and A. Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016,
arXiv:1508.07909) with all 256 bytes in its alphabet. In both cases any text can be encoded, and
decoding gives it back unchanged.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import token_numbers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHARED_WORDS = 12  # topics with this many consecutive words in common are in the same split
_VALIDATION_SHARE = 0.1
_BYTES = 256
_BPE_SIZE = 1024
_LARGEST_BPE = 16384
_BETWEEN_TOPICS = "\n\n"


@dataclass(frozen=True)
class Documentation(Task):
    """Windows of `length` tokens from the Python documentation; each target is the next token.

    Args:
        unit: "bytes" or "bpe".
        length: positions per window.
        bpe_size: how many BPE pieces, the 256 bytes included; 1024 by default. Only with "bpe".
        vocabulary: a vocabulary made elsewhere, as JSON; `from_vocabulary` is the easy way to give
            it. Without it, BPE is trained on the training topics of this Python in well under a
            second.
    """

    unit: str = "bytes"
    length: int = 256
    bpe_size: int | None = None
    vocabulary: str = field(default="", repr=False)
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "documentation"

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, ("bytes", "bpe"))
        self._check_sizes(length=2)
        if not isinstance(self.vocabulary, str):
            raise TypeError(
                "vocabulary is the JSON text of another task's .vocabulary, "
                f"got a {type(self.vocabulary).__name__}"
            )
        if self.unit == "bytes" and self.bpe_size is not None:
            raise ValueError(
                f"bpe_size={self.bpe_size!r} has no effect with unit='bytes', which always has 256 "
                "tokens: leave it out, or ask for unit='bpe'"
            )
        # The class is frozen, so defaults that depend on other options are set this way.
        if self.unit == "bpe" and self.bpe_size is None:
            carried = self.vocabulary and _read_vocabulary(self.vocabulary)["size"]
            object.__setattr__(self, "bpe_size", carried or _BPE_SIZE)
        if self.unit == "bpe":
            self._check_sizes(bpe_size=_BYTES + 1)
            if self.vocab > _LARGEST_BPE:
                raise ValueError(f"bpe_size should be at most {_LARGEST_BPE}, got {self.bpe_size}")
        if not self.vocabulary:
            fresh = _trained_bpe(self.bpe_size) if self.bpe_size else _BYTE_VOCABULARY
            object.__setattr__(self, "vocabulary", fresh)
        self._check_vocabulary()
        self._check_length()

    @classmethod
    def from_vocabulary(cls, vocabulary: str, length: int = 256) -> "Documentation":
        """The task over this Python's text with the JSON of another task's `.vocabulary`."""
        if not isinstance(vocabulary, str):
            raise TypeError(
                "from_vocabulary takes the JSON text of `task.vocabulary`, "
                f"got a {type(vocabulary).__name__}"
            )
        return cls(_read_vocabulary(vocabulary)["unit"], length, vocabulary=vocabulary)

    @property
    def vocab(self) -> int:
        return self.bpe_size or _BYTES

    def encode(self, text: str) -> Tensor:
        """The tokens `(n,)` of any text, however long: nothing is cut to `length` or unknown.

        Raises ValueError for an empty text, and for half a surrogate pair, which no UTF-8 can hold.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode takes a str, got {text!r}, a {type(text).__name__}")
        if not text:
            raise ValueError(
                "The text is empty, so there is no token to start from: give it a character"
            )
        return torch.tensor(_encode(self.vocabulary, text))

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The text of tokens `(n,)`: `decode(encode(text)) == text`.

        Tokens that are no valid UTF-8 together (a model may write such) show as U+FFFD.
        """
        return b"".join(self._pieces(ids)).decode(errors="replace")

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """How to show each token: ␣ for a space, ⏎ for a line end, escapes for the invisible."""
        return [_visible(piece) for piece in self._pieces(ids)]

    def _pieces(self, ids: Tensor | Sequence[int]) -> list[bytes]:
        pieces = _pieces_of(self.vocabulary)
        numbers = token_numbers(ids)
        for token in numbers:
            if not 0 <= token < len(pieces):
                raise ValueError(f"Tokens are numbers from 0 to {len(pieces) - 1}, got {token}")
        return [pieces[token] for token in numbers]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        text = _tokens_of_split(self.vocabulary, split)
        starts = generator.integers(len(text) - self.length, size=(size, 1))
        windows = text[starts + np.arange(self.length + 1)].astype(np.int64)
        return Batch(from_numpy(windows[:, :-1].copy()), from_numpy(windows[:, 1:].copy()))

    def _describe(self, batch: Batch) -> Example:
        kind = "bytes" if self.unit == "bytes" else "BPE pieces"
        return Example(
            title=f"{self.length} {kind} of the Python documentation",
            description=f"At every position the model is asked for the next token. The text: "
            f"{self.decode(batch.inputs[0])}",
            tokens=self.tokens(batch.inputs[0]),
            labels=self.tokens(batch.targets[0]),
        )

    def _check_vocabulary(self) -> None:
        carried = _read_vocabulary(self.vocabulary)
        if carried["unit"] != self.unit or carried["size"] != self.vocab:
            raise ValueError(
                f"The vocabulary holds {carried['size']} tokens of {carried['unit']!r}, but the "
                f"options ask for {self.vocab} of {self.unit!r}: use Documentation.from_vocabulary"
            )

    def _check_length(self) -> None:
        most = len(_tokens_of_split(self.vocabulary, "validation")) - 1
        if self.length > most:
            raise ValueError(
                f"length should be at most {most}, as the validation text of this Python has "
                f"{most + 1} {self.unit}, got {self.length}"
            )


# The text and its split


@lru_cache(maxsize=1)
def topics_by_split() -> dict[str, dict[str, str]]:
    """The topics, name → text, of "train" and of "validation"."""
    topics = _topics()
    room = _VALIDATION_SHARE * sum(map(len, topics.values()))
    chosen: set[str] = set()
    for family in sorted(families(topics), key=lambda family: sha256(family[0].encode()).digest()):
        size = sum(len(topics[name]) for name in family)
        if size <= room:
            room -= size
            chosen.update(family)
    return {
        "train": {name: text for name, text in topics.items() if name not in chosen},
        "validation": {name: text for name, text in topics.items() if name in chosen},
    }


def families(topics: dict[str, str]) -> list[list[str]]:
    """Groups of topics that are linked by common runs of `SHARED_WORDS` words, names sorted."""
    family_of = {name: [name] for name in topics}
    first_with: dict[tuple[str, ...], str] = {}
    for name, text in topics.items():
        for run in word_runs(text):
            ours, theirs = family_of[name], family_of[first_with.setdefault(run, name)]
            if ours is not theirs:
                theirs.extend(ours)
                family_of.update(dict.fromkeys(ours, theirs))
    return [sorted(family) for family in {id(f): f for f in family_of.values()}.values()]


def word_runs(text: str) -> set[tuple[str, ...]]:
    """Every run of `SHARED_WORDS` consecutive words; all of the text when it has fewer."""
    words = text.split()
    last = max(len(words) - SHARED_WORDS, 0)
    return {tuple(words[start : start + SHARED_WORDS]) for start in range(last + 1)}


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ImportError(
            "This Python came without pydoc_data, the documentation behind help(): some slimmed "
            "distributions drop it; use a Python from python.org, Debian or conda"
        ) from error
    return dict(sorted(topics.items()))


# Vocabularies, as JSON


_BYTE_VOCABULARY = json.dumps({"unit": "bytes", "size": _BYTES})


@lru_cache(maxsize=8)
def _trained_bpe(size: int) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    every_byte = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=every_byte, show_progress=False)
    tokenizer.train_from_iterator(topics_by_split()["train"].values(), trainer)
    if tokenizer.get_vocab_size() != size:
        raise ValueError(
            f"bpe_size should be at most {tokenizer.get_vocab_size()}, all that the training text "
            f"of this Python can be merged into, got {size}"
        )
    return json.dumps({"unit": "bpe", "size": size, "tokenizer": json.loads(tokenizer.to_str())})


@lru_cache(maxsize=8)
def _read_vocabulary(vocabulary: str) -> dict[str, Any]:
    try:
        carried = json.loads(vocabulary)
        check_choice("unit", carried["unit"], ("bytes", "bpe"))
        check_integer("size", carried["size"], at_least=_BYTES)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise _foreign(vocabulary) from error
    return carried


@lru_cache(maxsize=8)
def _tokenizer(vocabulary: str) -> "Tokenizer":
    from tokenizers import Tokenizer

    carried = _read_vocabulary(vocabulary)
    try:
        tokenizer = Tokenizer.from_str(json.dumps(carried.get("tokenizer")))
    except Exception as error:  # tokenizers raises nothing narrower
        raise _foreign(vocabulary) from error
    complete = {tokenizer.id_to_token(token) for token in range(carried["size"])}
    if tokenizer.get_vocab_size() != carried["size"] or not complete.issuperset(_byte_letters()):
        raise _foreign(vocabulary)
    return tokenizer


def _foreign(vocabulary: str) -> ValueError:
    return ValueError(
        "The vocabulary is not one that Documentation wrote, or not all of it: expected the JSON "
        f"text of `task.vocabulary`; got {vocabulary[:60]!r}."
    )


def _encode(vocabulary: str, text: str) -> list[int]:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Character {error.start} of the text is half a surrogate pair "
            f"({text[error.start]!r}), which UTF-8 cannot hold: remove it"
        ) from error
    if _read_vocabulary(vocabulary)["unit"] == "bytes":
        return list(raw)
    return _tokenizer(vocabulary).encode(text).ids


@lru_cache(maxsize=8)
def _pieces_of(vocabulary: str) -> list[bytes]:
    """The bytes of every token."""
    carried = _read_vocabulary(vocabulary)
    if carried["unit"] == "bytes":
        return [bytes([byte]) for byte in range(_BYTES)]
    byte_of = {letter: byte for byte, letter in enumerate(_byte_letters())}
    tokenizer = _tokenizer(vocabulary)
    pieces = [tokenizer.id_to_token(token) or "" for token in range(carried["size"])]
    return [bytes(byte_of[letter] for letter in piece) for piece in pieces]


def _byte_letters() -> list[str]:
    """The letter by which byte-level BPE writes each byte.

    Visible Latin-1 characters stand for themselves, the others for the letters from U+0100 on, in
    order.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(_BYTES) if byte not in visible]
    return [chr(b if b in visible else 0x100 + hidden.index(b)) for b in range(_BYTES)]


@lru_cache(maxsize=16)
def _tokens_of_split(vocabulary: str, split: str) -> np.ndarray:
    """All tokens of a split, topic after topic; int32, since the longest has some 400,000."""
    tokens: list[int] = []
    for text in topics_by_split()[split].values():
        tokens += _encode(vocabulary, text + _BETWEEN_TOPICS)
    return np.array(tokens, dtype=np.int32)


def _visible(piece: bytes) -> str:
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in piece)
    signs = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    return "".join(signs.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in text)
