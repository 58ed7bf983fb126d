"""The steps of one forward pass: what each is called, how it is drawn, and what is said of it."""

from typing import NamedTuple

from attnlab_widgets.network import ADDED, Network


class Step(NamedTuple):
    """``key`` names what is computed; ``part`` is where: "letters", "layer 0", …, "answer".

    ``kind`` is how it is drawn: "vectors" (n, width), "heads" (h, n, width), "scores" or "weights"
    (h, n, n), "logits" or "chances" (n, vocab).
    """

    key: str
    part: str
    name: str
    kind: str
    says: str


_LETTERS = (
    ("embedding", "embedding", "vectors",
     "Each letter is looked up in a table: a vector of its own, wherever it stands."),
    ("position", "position", "vectors",
     "Each place has a vector, too, whichever letter stands there."),
    ("stream", "sum", "vectors",
     "Letter plus place: the stream, which every later step reads and adds to."),
)  # fmt: skip
_NO_PLACES = "This model adds no vectors of places: zeros."
_NOTHING_ADDED = (
    "The vector of each letter alone: the stream, which every later step reads and adds to."
)
_LAYER = (
    ("norm", "norm 1", "vectors",
     "The stream of each letter, brought to mean 0 and variance 1, then scaled and shifted."),
    ("query", "queries", "heads",
     "Each head makes of every letter a query: what this letter looks for."),
    ("key", "keys", "heads",
     "Each head makes of every letter a key, too: by what this letter is found."),
    ("score", "scores", "scores",
     "Query times key, divided by the root of their width. Later letters are masked."),
    ("weight", "weights", "weights",
     "Softmax: the scores of each row become shares that sum to 1."),
    ("value", "values", "heads",
     "Each head makes a value: what this letter hands on to those that attend to it."),
    ("gathered", "gathered", "heads",
     "Each letter gathers its own value and those before it, by its weights."),
    ("output", "output", "vectors",
     "The heads side by side, times one matrix: what attention adds to the stream."),
    ("attended", "sum 1", "vectors",
     "The stream plus what attention adds."),
    ("norm2", "norm 2", "vectors",
     "The stream again brought to mean 0 and variance 1, then scaled and shifted."),
    ("hidden", "hidden", "vectors",
     "{width}, each letter alone: what is below zero is nearly cut off (GELU)."),
    ("contract", "feed-forward", "vectors",
     "Back to the width of the stream: what the feed-forward layer adds."),
    ("stream", "sum 2", "vectors",
     "The stream plus what the feed-forward layer adds."),
)  # fmt: skip
_ANSWER = (
    ("norm", "norm", "vectors",
     "The stream a last time brought to mean 0 and variance 1, then scaled and shifted."),
    ("logits", "logits", "logits",
     "Times {table}{scale}: a score for each that may come next."),
    ("chances", "probabilities", "chances",
     "Softmax: how probable the model finds each next letter."),
)  # fmt: skip


def steps(network: Network) -> list[Step]:
    """All steps of a model in order, in sentences that are true of it."""
    found = [Step(key, "letters", *rest) for key, *rest in _LETTERS]
    if ADDED not in network.numbers:
        found[1] = found[1]._replace(says=_NO_PLACES)
        found[2] = found[2]._replace(says=_NOTHING_ADDED)
    for at in range(len(network.heads)):
        hidden, dim = network.numbers[f"{at}.expand"].shape
        width = "A wider layer" if hidden > dim else "A narrower layer"
        width = "A layer as wide as the stream" if hidden == dim else width
        layer = [Step(f"{at}.{key}", f"layer {at}", *rest) for key, *rest in _LAYER]
        found += [step._replace(says=step.says.format(width=width)) for step in layer]
    table = "a matrix with a row for every letter"
    table = table if "output" in network.numbers else "the vector of every letter"
    scale = "" if network.logit_scale == 1 else f" and {network.logit_scale:g}"
    answer = [Step(key, "answer", *rest) for key, *rest in _ANSWER]
    return found + [
        step._replace(says=step.says.format(table=table, scale=scale)) for step in answer
    ]
