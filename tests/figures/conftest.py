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


@pytest.fixture
def drawn():
    """drawn(picture, trace=0) → the trace as the browser gets it, arrays decoded."""
    import base64

    def decode(value):
        if isinstance(value, dict) and "bdata" in value:
            flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<" + value["dtype"])
            shape = value.get("shape")
            return flat.reshape([int(s) for s in shape.split(",")]) if shape else flat
        return value

    def trace(picture, place=0):
        import json

        found = json.loads(picture.to_json())["data"][place]
        return {name: decode(value) for name, value in found.items()}

    return trace
