"""Suggestions for errors: the known names nearest to a mistyped one."""

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

ELSEWHERE = {
    "dim": ("d_model", "embed_dim", "hidden_size", "n_embd", "embedding_dim", "width"),
    "heads": ("num_heads", "nhead", "n_heads", "n_head", "num_attention_heads"),
    "layers": ("num_layers", "n_layers", "n_layer", "depth", "num_hidden_layers"),
    "hidden": ("d_ff", "dim_feedforward", "ffn_dim", "intermediate_size"),
    "vocab": ("vocab_size", "num_tokens", "n_vocab"),
    "max_len": ("max_length", "max_seq_len", "block_size", "context_length", "n_positions"),
    "learning_rate": ("lr",),
    "batch_size": ("bs",),
    "steps": ("max_steps", "num_steps", "iterations"),
    "causal": ("is_causal",),
    "tie": ("tie_weights", "tie_word_embeddings"),
}
"""A name of attnlab → what other libraries call the same."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the known names nearest to ``name``, or all of them."""
    known = list(known)
    meant = [own for own, others in ELSEWHERE.items() if name in others and own in known]
    close = meant or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(known)}"


def check_choice(what: str, name: object, known: Iterable[str]) -> None:
    """Raises ValueError unless the name is known; it names what was given and the choices."""
    known = list(known)
    if not isinstance(name, str) or name not in known:
        end = suggestion(str(name)[:100], known)
        raise ValueError(f"there is no {what} {reprlib.repr(name)}{end}")


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """``table[name]``, or a ValueError that names ``what`` was asked for and the choices."""
    check_choice(what, name, table)
    return table[name]
