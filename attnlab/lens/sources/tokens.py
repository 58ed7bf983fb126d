"""The token lists of a view, and which layer reads which."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from attnlab.lens.sides import kind_of
from attnlab.lens.sources.layer_names import Outline, of_an_image, pattern_of
from attnlab.lens.sources.patches import Patch, Patches


class Found(list[Any]):
    """Tokens that were found, not given: a layer that they do not fit has numbered places."""


class Shaped(Protocol):
    """What is read of a layer."""

    name: str
    named: bool
    kind: str | None

    @property
    def shape(self) -> tuple[int, int, int]: ...


@dataclass
class Tokens:
    """The token lists of a view, and which layer reads which."""

    queries: list[Any] | None
    source: list[Any] | None
    patches: Patches | None = None
    sets: list[list[Any]] = field(default_factory=list)
    read: bool = False
    """Whether a layer has read the source."""
    outline: Sequence[Outline] = ()
    """All layers of the source, of which an error may suggest some."""

    def settle(self, layer: Shaped) -> None:
        """The tokens that the layer reads: by its name or, if that is unclear, by the lengths."""
        if layer.kind is None:
            own, source = (None if x is None else len(x) for x in (self.queries, self.source))
            _, n, m = layer.shape
            layer.kind = kind_of(layer.name, n, m, own, source, named=layer.named)

    def place(self, layer: Shaped) -> dict[str, dict[str, int]]:
        """Which list (``set``) and from which token on (``start``) queries and keys are named."""
        self.settle(layer)
        _, n, m = layer.shape
        queries, keys = self._lists(layer)
        # In a decoding step the queries are the last positions.
        decoding = queries is keys and queries is not None and n < m <= len(queries)
        start = m - n if decoding else 0
        queries = self._fitting(layer, "queries", queries, start + n)
        keys = self._fitting(layer, "keys", keys, m)
        q = self._set(queries, n)
        return {"q": {"set": q, "start": start}, "k": {"set": self._set(keys, m), "start": 0}}

    def _lists(self, layer: Shaped) -> tuple[list[Any] | None, list[Any] | None]:
        _, n, m = layer.shape
        queries, keys = self._texts(layer)
        if self._of_image(layer.name, m, keys, layer.kind == "cross"):
            assert self.patches is not None
            keys = self.patches.tokens(m)
            queries = keys if n == m and layer.kind != "cross" else queries
        elif self.patches is not None and queries is keys and keys and n == m != len(keys):
            queries = keys = self.patches.after(keys, m) or keys
        return queries, keys

    def _texts(self, layer: Shaped) -> tuple[list[Any] | None, list[Any] | None]:
        if self.source is None:
            places = layer.kind == "cross" and layer.shape[1] != layer.shape[2]
            return self.queries, None if places else self.queries
        if layer.kind == "self":
            return self.queries, self.queries
        self.read = True
        if layer.kind == "encoder":
            return self.source, self.source
        return self.queries, self.source

    def _of_image(self, name: str, m: int, keys: list[Any] | None, cross: bool) -> bool:
        """Whether the m keys are patches: the layer says so, or no text has that length."""
        if self.patches is None or not self.patches.fits(m):
            return False
        if of_an_image(name):
            return True
        if any(isinstance(token, Patch) for token in keys or ()):  # at its places in a text
            rows, columns = self.patches.grid_of(m) or (0, 0)
            return len(keys or ()) != m and 4 <= rows * columns in (m, m - 1)
        return keys is None or len(keys) != m or (cross and self.source is None)

    def all_read(self) -> None:
        """Refuse a source or an image that no layer has read."""
        if self.source is not None and not self.read and not isinstance(self.source, Found):
            raise ValueError(
                "no layer reads `source_tokens`: queries and keys are the same text in all of "
                "them; leave them out"
            )
        if self.patches is not None:
            self.patches.all_read(self.sets)

    def _fitting(
        self, layer: Shaped, what: str, tokens: list[Any] | None, count: int
    ) -> list[Any] | None:
        """The tokens where they fit; None (places) where found ones do not; otherwise an error."""
        if tokens is None or len(tokens) == count or (len(tokens) > count and "#" in layer.name):
            return tokens
        if isinstance(tokens, Found):
            return None
        given = "source_tokens" if tokens is self.source else "tokens"
        raise ValueError(
            f"layer {layer.name!r} has {count} {what}, but `{given}` holds {len(tokens)} tokens; "
            + self._advice(layer, what, given)
        )

    def _advice(self, layer: Shaped, what: str, given: str) -> str:
        _, n, m = layer.shape
        if n != m and (len(self.queries or ()), len(self.source or ())) == (m, n):
            return "the two are the other way round: `tokens` are those of the queries"
        missing = self.source is None
        if missing and layer.kind == "encoder" and self._two_texts():
            advice = f"give the {m} tokens that the encoder reads as `source_tokens`"
        elif missing and n != m:
            advice = "if queries and keys are different texts, give the keys' tokens as "
            advice += "`source_tokens`"
        else:
            advice = f"give one for each of the {what}"
        return advice + self._only(given)

    def _two_texts(self) -> bool:
        return any(kind_of(x.name, x.n, x.m, None, None) != "encoder" for x in self.outline)

    def _only(self, given: str) -> str:
        """The pattern that records those layers alone that the tokens fit."""
        count = len((self.queries if given == "tokens" else self.source) or ())
        fitting = [x.name for x in self.outline if x.n == count]
        others = [x.name for x in self.outline if x.n != count]
        pattern = pattern_of(fitting, others)
        if pattern is None:
            return ""
        return (
            f"; or record the layers alone that these {count} tokens fit, with "
            f'attnlab.watch(model, only="{pattern}")'
        )

    def _set(self, tokens: list[Any] | None, count: int) -> int:
        found = [str(i) for i in range(count)] if tokens is None else tokens
        for at, known in enumerate(self.sets):
            if known is found or known == found:
                return at
        self.sets.append(found)
        return len(self.sets) - 1
