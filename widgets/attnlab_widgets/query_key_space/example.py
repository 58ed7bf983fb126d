"""Maps of queries and keys made by hand, without a model: spirals, clumps, chance."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlab.lens.query_key.faithfulness import Faithfulness
from attnlab.lens.query_key.maps import HeadMap, Maps, Projection
from attnlab.lens.query_key.normalise import Normalisation
from attnlab.lens.query_key.points import LayerPoints, Points, Tokens
from attnlab_widgets.query_key_space import QueryKeySpace

STATISTICS = ("entropy", "previous", "same", "first")
WORDS = ["the", "cat", "sat", "on", "a", "mat", ",", "and", "12", "play", "##ing", "<b>bold</b>"]
WORDS += ["\n", "it", "saw", "the", "dog", "."]
NORMALISATION = Normalisation(1.25, np.zeros(16))
FAITHFULNESS = Faithfulness(0.93, 0.95, -0.71, -0.86, 0.62, 0.21, 0.44)


def example() -> QueryKeySpace:
    return QueryKeySpace(maps_of(points_of(tokens_of())))


def hostile(words: Sequence[str]) -> QueryKeySpace:
    tokens = tokens_of(2, len(words))
    space = QueryKeySpace(maps_of(points_of(replace(tokens, texts=(*words, *words)), 1, 2)))
    space.view, space.selected = "one", ["query", 0]
    return space


def tokens_of(sequences: int = 12, length: int = 18, **more: Any) -> Tokens:
    texts = tuple(WORDS[(3 * s + i) % len(WORDS)] for s in range(sequences) for i in range(length))
    place = np.tile(np.arange(length, dtype=np.int32), sequences)
    return Tokens(texts, np.repeat(np.arange(sequences, dtype=np.int32), length), place, **more)


def points_of(tokens: Tokens, layers: int = 3, heads: int = 4, *, seed: int = 0) -> Points:
    """Head 0 attends to the previous token, head 1 to the first, 2 to itself, 3 at random."""
    made = np.random.default_rng(seed)
    count = len(tokens.texts)
    first = np.array([np.argmax(tokens.sequence == s) for s in range(tokens.sequence.max() + 1)])
    length = int(tokens.position.max()) + 1
    found = []
    for layer in range(layers):
        strongest = np.full((heads, count, 8), -1, np.int32)
        weights = np.zeros((heads, count, 8), np.float16)
        for head in range(heads):
            for i in range(count):
                p = tokens.position[i]
                seen = list(range(p, -1, -1))
                if head % 4 == 0 and p:
                    seen = [p - 1, *(q for q in seen if q != p - 1)]
                elif head % 4 == 1:
                    seen = seen[::-1]
                elif head % 4 == 3:
                    made.shuffle(seen)
                seen = seen[:8]
                strongest[head, i, : len(seen)] = first[tokens.sequence[i]] + np.array(seen)
                share = 0.5 ** np.arange(1, len(seen) + 1)
                weights[head, i, : len(seen)] = share / max(1, share.sum())
        side = min(length, 32)
        by_position = np.tril(np.ones((heads, side, side), np.float32))
        found.append(
            LayerPoints(
                name=f"blocks.{layer}.attention",
                queries=made.normal(size=(heads, count, 16)).astype(np.float16),
                keys=made.normal(size=(heads, count, 16)).astype(np.float16),
                value_norms=made.uniform(0.5, 2, (heads, count)).astype(np.float32),
                scale=np.full(heads, 0.25),
                strongest=strongest,
                weights=weights,
                by_position=by_position / by_position.sum(-1, keepdims=True),
                statistics={name: made.uniform(0, 1, heads) for name in STATISTICS},
                masks=(None,) * len(first),
                outside=None,
                query_tokens=tokens,
                key_tokens=tokens,
            )
        )
    return Points(tuple(found))


def coordinates(tokens: Tokens, head: int, dimensions: int, made: Any) -> tuple[Any, Any]:
    p, count = tokens.position, len(tokens.texts)
    length = p.max() + 1
    noise = made.normal(scale=0.04, size=(2, count, dimensions))
    if head % 4 == 0:  # a spiral: a query lies where the key before it does
        turn = 4 * np.pi * np.stack([p - 1, p]) / length
        flat = np.stack([turn * np.cos(turn), turn * np.sin(turn)], -1) / 8
    elif head % 4 == 1:  # clumps by token
        kinds = np.array([hash_of(text) for text in tokens.texts])
        flat = np.stack([np.stack([np.cos(kinds), np.sin(2 * kinds)], -1)] * 2)
        flat[1] *= 0.8
    elif head % 4 == 2:  # positions modulo 5
        turn = 2 * np.pi * (p % 5) / 5
        flat = np.stack([np.stack([np.cos(turn), np.sin(turn)], -1)] * 2)
    else:
        flat = made.normal(scale=0.5, size=(2, count, 2))
        flat[1] += 0.8
    deep = np.concatenate([flat, flat[..., :1] * flat[..., 1:] * 0.7], -1)[..., :dimensions]
    found = (deep + noise).astype(np.float32)
    return found[0], found[1]


def hash_of(text: str) -> float:
    return sum(map(ord, text)) % 17 / 17 * 6.283


def maps_of(
    points: Points, *, method: str = "umap", dimensions: int = 2, seed: int = 0, blur: float = 0
) -> Maps:
    made = np.random.default_rng(seed)
    of = {}
    for layer, one in enumerate(points):
        for head in range(len(one.queries)):
            q, k = coordinates(one.query_tokens, head, dimensions, made)
            q = q + blur * made.normal(size=q.shape).astype(np.float32)
            k = k + blur * made.normal(size=k.shape).astype(np.float32)
            of[layer, head] = HeadMap(layer, head, q, k, NORMALISATION, FAITHFULNESS)
    return Maps(points, of, Projection(method, dimensions, seed=seed))
