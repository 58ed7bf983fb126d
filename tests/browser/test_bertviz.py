"""bertviz's own views, drawn in the browser; what they ask a CDN for comes from npm packages."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # its open files
]

TOKENS = list("abcde")
OPACITY = "lines => lines.map(line => Number(line.getAttribute('stroke-opacity')))"


@pytest.fixture(scope="module")
def weights() -> np.ndarray:
    """(layers, heads, n, n)."""
    return np.random.default_rng(7).dirichlet(np.full(5, 0.5), size=(2, 3, 5))


@pytest.fixture
def drawn(weights: np.ndarray, tabs: Any, cdn: Any, tmp_path: Path) -> Any:
    """Opens a view of the weights from a file; gives the page."""
    import torch

    pages = []

    def draw(view: Any) -> Any:
        attention = [torch.tensor(layer)[None] for layer in weights]
        html = view(attention, TOKENS, html_action="return").data
        (tmp_path / "view.html").write_text(f"<!doctype html><body>{html}</body>")
        pages.append(tabs.open())
        cdn(pages[-1])
        pages[-1].goto((tmp_path / "view.html").as_uri())
        pages[-1].locator("line").first.wait_for(state="attached")
        return pages[-1]

    yield draw
    for page in pages:
        page.close()


def test_head_view_draws_the_weights_of_one_layer(drawn, weights, soon):
    from bertviz import head_view

    page = drawn(head_view)
    lines = page.locator(".headAttention line")
    soon(lambda: lines.evaluate_all(OPACITY), like(weights[0] / 3))
    page.locator("#layer").select_option("1")
    soon(lambda: lines.evaluate_all(OPACITY), like(weights[1] / 3))
    assert "".join(page.locator("#left text").all_text_contents()) == "abcde"


def test_model_view_draws_every_head(drawn, weights, soon):
    from bertviz import model_view

    lines = drawn(model_view).locator("line:not([stroke-opacity='0.7'])")
    soon(lambda: lines.evaluate_all(OPACITY), like(weights))


def like(expected: np.ndarray) -> Any:
    """Whether so many lines are drawn, and as strong as these weights."""
    return lambda found: (
        len(found) == expected.size and np.allclose(found, expected.ravel(), atol=1e-6)
    )


def test_without_its_cdn_bertviz_draws_nothing(tmp_path, tabs, weights, soon):
    """The reason why AttentionView loads nothing from a network."""
    import torch
    from bertviz import head_view

    html = head_view([torch.tensor(weights[0])[None]], TOKENS, html_action="return").data
    (tmp_path / "view.html").write_text(html)
    page = tabs.open(offline=True)
    page.goto((tmp_path / "view.html").as_uri())
    heard = []

    def asked() -> list[str]:
        heard.extend(tabs.complaints())
        return [complaint for complaint in heard if re.match("asked for", complaint)]

    wanted = soon(asked, bool)
    assert page.locator("line").count() == 0
    assert all("cdnjs.cloudflare.com" in complaint for complaint in wanted)
    page.close()
