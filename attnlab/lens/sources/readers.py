"""Tokenizers and processors of several kinds, under one face: encode a text, name its tokens."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SOUND_RATE = 16_000


class Reader:
    """Reads texts, images and sounds by ``tokenizer``, which may be None.

    A tokenizer or processor of Hugging Face, a ``tokenizers.Tokenizer``, or what has ``encode`` and
    ``tokens`` (the tasks of attnlab on text).
    """

    def __init__(self, tokenizer: Any) -> None:
        self.processor = tokenizer
        inner = getattr(tokenizer, "tokenizer", None)
        self.tokenizer = tokenizer if inner is None else inner
        has = [name for name in _FACES if hasattr(self.tokenizer, name)]
        if tokenizer is not None and not has and not callable(tokenizer):
            raise TypeError(
                "`tokenizer` should be a tokenizer or processor of Hugging Face, a "
                f"tokenizers.Tokenizer or a task of attnlab, got {type(tokenizer).__name__}"
            )
        if not has:
            self.tokenizer = None  # it processes images alone

    # a text or an image into tensors

    def encoded(self, text: str, *, target: bool = False) -> dict[str, Any]:
        """The tensors of a text: at least ``input_ids`` (1, n)."""
        tokenizer = self.tokenizer
        if hasattr(tokenizer, "convert_ids_to_tokens"):
            options: dict[str, Any] = {"text_target": text} if target else {"text": text}
            return dict(tokenizer(**options, return_tensors="pt"))
        found = tokenizer.encode(text)
        ids = found.ids if hasattr(found, "ids") else found
        return {"input_ids": torch.as_tensor(ids).reshape(1, -1)}

    def processed(self, inputs: Any, *, sound: bool) -> dict[str, Any]:
        """The tensors of an image or of a sound."""
        what = "a sound" if sound else "an image"
        if not callable(self.processor) or self.processor is self.tokenizer:
            ready = "input_features or input_values" if sound else "pixel_values"
            raise ValueError(
                f"{what} needs the model's own processor, given as `tokenizer`, for example "
                "transformers.AutoProcessor.from_pretrained(…); or give the tensor that it makes, "
                f"as a dict with {ready}"
            )
        if sound:
            options: dict[str, Any] = {"sampling_rate": SOUND_RATE}
            return dict(self.processor(inputs, return_tensors="pt", **options))
        return dict(self.processor(images=inputs, return_tensors="pt"))

    # what to call tokens

    def tokens(self, ids: Tensor) -> list[str]:
        """The tokens of one sequence as texts."""
        numbers = ids.tolist()
        tokenizer = self.tokenizer
        if tokenizer is None:
            return [str(number) for number in numbers]
        if hasattr(tokenizer, "convert_ids_to_tokens"):
            written = tokenizer.convert_ids_to_tokens(numbers)
            special = set(getattr(tokenizer, "all_special_tokens", ()))
            return _readable(written, special, _vocabulary(tokenizer))
        if hasattr(tokenizer, "id_to_token"):
            written = [tokenizer.id_to_token(number) for number in numbers]
            return _readable(written, set(), tokenizer.get_vocab())
        return [str(token) for token in tokenizer.tokens(ids.cpu())]

    # what an image looks like

    def colours(self, pixels: Tensor) -> Tensor:
        """(channels, height, width) from 0 to 1 again, by the processor's mean and deviation."""
        processor = getattr(self.processor, "image_processor", self.processor)
        mean = getattr(processor, "image_mean", None)
        deviation = getattr(processor, "image_std", None)
        if not mean or not deviation or len(mean) != len(pixels):
            return pixels
        mean, deviation = (
            torch.tensor(x, device=pixels.device)[:, None, None] for x in (mean, deviation)
        )
        return (pixels.float() * deviation + mean).clamp(0, 1)


_FACES = ("convert_ids_to_tokens", "id_to_token", "tokens")


def _vocabulary(tokenizer: Any) -> Mapping[str, int]:
    return tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}


def _readable(
    written: list[str | None], special: set[str], vocabulary: Mapping[str, int]
) -> list[str]:
    """Tokens as text: the letters that stand for bytes become these bytes, a low line a space."""
    texts = ["?" if token is None else token for token in written]
    if "Ġ" in vocabulary or any("Ġ" in text for text in texts):
        return [text if text in special else _of_bytes(text) for text in texts]
    if any(text.startswith("▁") for text in (*texts, *vocabulary)):
        return [text if text in special else _of_pieces(text) for text in texts]
    return texts


def _of_bytes(token: str) -> str:
    """A token of a byte-level vocabulary; bytes that are no text by themselves as xE4."""
    known = _byte_letters()
    if any(letter not in known for letter in token):
        return token
    raw = bytes(known[letter] for letter in token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if 32 <= byte < 127 else f"x{byte:02X}" for byte in raw)


def _of_pieces(token: str) -> str:
    """A token of SentencePiece: ▁ is a space, <0x0A> a byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        byte = int(token[3:5], 16)
        return chr(byte) if byte < 128 else f"x{byte:02X}"
    return token.replace("▁", " ")


@functools.cache
def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level vocabularies write bytes: printable ones stand for
    themselves, the others for letters from U+0100 on, in their order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + at): byte for at, byte in enumerate(others)}
