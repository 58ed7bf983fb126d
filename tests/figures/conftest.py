import base64
import json

import numpy as np
import pytest


@pytest.fixture
def attention():
    """attention(*shape, seed, causal) → random weights whose rows sum to one."""

    def make(*shape, seed=0, causal=False):
        scores = np.random.default_rng(seed).normal(size=shape) * 2
        if causal:
            scores = np.where(np.tril(np.ones(shape[-2:], bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    return make


def _numbers(values):
    """plotly 5 writes lists where plotly 6 and later write base64; null is NaN."""
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        return values


@pytest.fixture
def drawn():
    """drawn(picture, trace=0) → the trace as the browser gets it, arrays decoded."""

    def decode(value):
        if isinstance(value, dict) and "bdata" in value:
            flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<" + value["dtype"])
            shape = value.get("shape")
            return flat.reshape([int(s) for s in shape.split(",")]) if shape else flat
        if isinstance(value, list):
            return _numbers(value)
        return value

    def trace(picture, place=0):
        found = json.loads(picture.to_json())["data"][place]
        return {name: decode(value) for name, value in found.items()}

    return trace
