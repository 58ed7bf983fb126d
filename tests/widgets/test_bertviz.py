"""bertviz gets the recording's own numbers."""

import json
import re

import pytest
import torch
from attnlab_widgets.bertviz import to_bertviz

import attnlab

pytest.importorskip("bertviz", reason="bertviz is not installed")
# bertviz leaves the files of its JavaScript open.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in.*view.js:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.filterwarnings("ignore:unclosed file.*view.js:ResourceWarning"),
]
HEADS, N = 3, 7


@pytest.fixture
def seen() -> object:
    model = attnlab.TinyTransformer(13, dim=24, layers=2, heads=HEADS)
    with attnlab.watch(model) as seen:
        model(torch.arange(N)[None])
    return seen


TOKENS = [f"t{i}" for i in range(N)]


@pytest.mark.parametrize("view", ["head", "model"])
def test_weights(seen: object, view: str) -> None:
    page = to_bertviz(seen, TOKENS, view).data
    assert '"t6"' in page
    value = float(seen[1].weights[0, 2, 5, 3])
    numbers = {round(float(x), 5) for x in re.findall(r"\d\.\d+(?:e-\d+)?", page)}
    assert round(value, 5) in numbers


def test_neurons(seen: object) -> None:
    page = to_bertviz(seen, TOKENS, "neuron").data
    data = json.loads(re.search(r"bertviz_params = (.*)", page)[1])
    assert data["bidirectional"] is False
    found = torch.tensor(data["attention"]["all"]["queries"][1])
    assert torch.equal(found, seen[1].queries[0])


def test_refusals(seen: object) -> None:
    with pytest.raises(ValueError, match='"head", "model" or "neuron"'):
        to_bertviz(seen, TOKENS, "tree")
    with pytest.raises(ValueError, match="7 × 7"):
        to_bertviz(seen, TOKENS[:-2])
    with pytest.raises(TypeError, match="queries and keys"):
        to_bertviz(torch.rand(2, HEADS, N, N), TOKENS, "neuron")
    with pytest.raises(TypeError, match="split it first"):
        to_bertviz(seen, "abcdefg")


@pytest.mark.parametrize("view", ["head", "model", "neuron"])
def test_a_token_cannot_end_the_script_it_is_written_in(seen: object, view: str) -> None:
    hostile = ["</script><img src=x onerror=alert(1)>", *TOKENS[1:]]
    page = to_bertviz(seen, hostile, view).data
    assert "</script><img" not in page
    assert '"\\u003c/script>\\u003cimg src=x onerror=alert(1)>"' in page
