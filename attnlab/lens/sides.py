"""Which text an attention layer reads, where a model has two (encoder and decoder)."""

import re

_CROSS = re.compile(r"cross|context|encoder_attn|encdec|multihead_attn|attn2", re.IGNORECASE)
_ENCODER = re.compile(r"(^|[._])encoder([._]|$)", re.IGNORECASE)


def kind_of(
    name: str, n: int, m: int, own: int | None, source: int | None, *, named: bool = True
) -> str:
    """ "self", "cross" (own queries, keys of the source) or "encoder" (both of the source).

    By the name of a layer with n queries and m keys or, if that is unclear, by the lengths of the
    two texts, ``own`` and ``source`` (None: not given). ``named`` is False for layers whose name
    comes from no model.
    """
    only_the_source_fits = source == m and n != m != (own or 0) and "#" not in name
    silent = not named or only_the_source_fits
    found = ("cross", _CROSS), ("encoder", _ENCODER)
    otherwise = _by_length(n, m, own, source) if silent else "self"
    return next((kind for kind, pattern in found if pattern.search(name)), otherwise)


def _by_length(n: int, m: int, own: int | None, source: int | None) -> str:
    """For layers without a name. Where both texts have one length, the keys are the source."""
    if source is None:
        return "self"
    own = n if own is None else own
    if n == m and own != source and n in (own, source):
        return "self" if n == own else "encoder"
    return "cross"
