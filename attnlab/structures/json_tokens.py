"""JSON documents as tokens that a model can write one after the other, and back.

    {"item": "tea", "price": "3.50"}  →  <s_price> 3 . 5 0 </s_price> <s_item> t e a </s_item>

A key is a pair of tokens around its value, the entries of a list are joined by ``<sep/>``, and
text is its characters. Keys stand in reverse order of the alphabet unless told otherwise: a model
learns one order for each document, whatever order its file had.

What comes back is not always what was written (``inverts`` says it of a document):

- a list of one entry becomes that entry, since ``<sep/>`` stands only between two;
- numbers, true, false and null become text: ``3`` is "3", ``None`` is "null";
- an empty object or an empty list as a value becomes "";
- an empty object among the entries of a list disappears;
- a key inside the same key: the first closing token ends the outer one;
- a key that is never closed, as models that are cut short write it, is left out.

What holds no key is read as ``{"text_sequence": its text}``, and that document is written as its
text alone.

Departures: text is kept as it is, where the authors' code takes blanks off both ends; null, true
and false are written as in JSON, where it writes Python's names; what could never be read back
(lists in lists, lists of texts and objects, tags inside a text) is refused, where it is written.

Kim, Hong, Yim, Nam, Park, Yim, Hwang, Yun, Han, Park. OCR-free Document Understanding Transformer.
ECCV 2022, arXiv:2111.15664, section 3.1; the order of keys and what is lost are those of the
authors' code.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

SEPARATOR = "<sep/>"
TEXT = "text_sequence"
_OPENING = re.compile(r"<s_([^<>]+)>")
_TAGS = re.compile(r"</?s_[^<>]*>|<sep/>")
DEEPEST = 100


def opening(key: str) -> str:
    """The token in front of the value of a key."""
    return f"<s_{key}>"


def closing(key: str) -> str:
    """The token behind the value of a key."""
    return f"</s_{key}>"


def written(document: Any, *, reverse: bool = True) -> list[str]:
    """The tokens of a document: those of keys and lists, and single characters.

    document: what ``json.loads`` gives: objects, lists, texts, numbers, true, false, null.
    reverse: keys in reverse order of the alphabet; otherwise in the order that they have.

    A TypeError or ValueError for what is not JSON, and for what could not be told apart when it
    is read.
    """
    if not isinstance(reverse, bool):
        raise TypeError(f"reverse should be True or False, got {reverse!r}")
    return _written(document, reverse, 0)


def read(tokens: Sequence[str]) -> Any:
    """The document that tokens say; see above for what is lost. No tokens are refused: whatever a
    model has written is read as far as it can be."""
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(
            "tokens should be a list of texts, one for each token, as written(…) gives them, got "
            f"{tokens!r:.60}"
        )
    found = _read(list(tokens), 0)
    return found or {TEXT: "".join(tokens)}


def inverts(document: Any, *, reverse: bool = True) -> bool:
    """Whether a document comes back as it was, types included."""
    found = read(written(document, reverse=reverse))
    return json.dumps(found, sort_keys=True) == json.dumps(document, sort_keys=True)


def _written(value: Any, reverse: bool, depth: int) -> list[str]:
    if depth > DEEPEST:
        raise ValueError(f"a document should be at most {DEEPEST} values deep")
    if isinstance(value, dict):
        if depth == 0 and list(value) == [TEXT] and isinstance(value[TEXT], str):
            return list(_text(value[TEXT]))
        for key in value:
            _check_key(key)
        keys = sorted(value, reverse=True) if reverse else list(value)
        return [
            token
            for key in keys
            for token in (opening(key), *_written(value[key], reverse, depth + 1), closing(key))
        ]
    if isinstance(value, list):
        _check_list(value)
        parts = [_written(each, reverse, depth + 1) for each in value]
        return [token for part in parts for token in (SEPARATOR, *part)][1:]
    return list(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        tag = _TAGS.search(value)
        if tag:
            raise ValueError(
                f"the text {value!r:.60} holds {tag[0]!r}, which would be read as the token of a "
                "key or a list; replace it"
            )
        return value
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no number {value}; write null or a text")
        return json.dumps(value)
    raise TypeError(
        "a document is made of objects, lists, texts, numbers, true, false and null, got a "
        f"{type(value).__name__}"
    )


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key should be text, got {key!r}, a {type(key).__name__}")
    if not key or "<" in key or ">" in key:
        raise ValueError(f"a key should be text without '<' and '>', and not empty, got {key!r}")


def _check_list(entries: list[Any]) -> None:
    if any(isinstance(each, list) for each in entries):
        raise ValueError(
            "a list inside a list cannot be written: <sep/> would join the entries of both; give "
            "the inner one a key"
        )
    if len({isinstance(each, dict) for each in entries}) == 2:
        raise ValueError(
            "a list that holds both objects and texts or numbers cannot be written; give the texts "
            "a key, too"
        )


def _read(tokens: list[str], depth: int) -> Any:
    """An object, a list of objects where ``<sep/>`` stands between some, or {}."""
    found: dict[str, Any] = {}
    entries: list[Any] = []
    while (start := _first_opening(tokens)) is not None:
        key = tokens[start][3:-1]
        if closing(key) not in tokens[start:]:
            del tokens[: start + 1]
            continue
        end = tokens.index(closing(key), start)
        value = _value(tokens[start + 1 : end], depth + 1)
        if value != {}:
            found[key] = value
        del tokens[: end + 1]
        if tokens[:1] == [SEPARATOR]:
            entries, found = [*entries, found], {}
            del tokens[0]
    entries = [*entries, found] if found else entries
    return entries if len(entries) > 1 else entries[0] if entries else {}


def _first_opening(tokens: list[str]) -> int | None:
    return next((at for at, token in enumerate(tokens) if _OPENING.fullmatch(token)), None)


def _value(tokens: list[str], depth: int) -> Any:
    opened = depth < DEEPEST and any(_OPENING.fullmatch(token) for token in tokens)
    if opened and any(token.startswith("</s_") for token in tokens):
        return _read(tokens, depth)
    texts = [""]
    for token in tokens:
        if token == SEPARATOR:
            texts.append("")
        else:
            texts[-1] += token
    return texts if len(texts) > 1 else texts[0]
