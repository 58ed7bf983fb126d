"""What a notebook shows beside a card: a thumbnail of the mechanism's map, or the picture of its
role, and where to go on.

The maps are those of fresh layers with random weights on one short sequence, so that they show what
a mechanism can see rather than what a model has learned. All together take less than a second, and
each is computed once.
"""

import functools
import importlib.metadata
from base64 import b64encode

import numpy as np
import torch
from torch import Tensor

from attnlab.catalog import build, card, cards, pages, remembered
from attnlab.core.card import Beside, Card
from attnlab.core.home import Home, home
from attnlab.core.markup import escape
from attnlab.figures.svg import png
from attnlab.figures.theme import CIVIDIS
from attnlab.lens.mixing import mixing_matrix
from attnlab.lens.side_by_side import layers, map_of
from attnlab_widgets import part_pictures
from attnlab_widgets.wall_cards import LESSONS, lessons

LENGTH, DIM, HEADS = 16, 16, 2
CELL = 3
"""Pixels of a cell; masked ones are hatched in them."""
SIDE = 48
CAPTION = (
    f"Implied maps: how much each of {LENGTH} positions (rows) takes from each other (columns), in "
    "a fresh layer with random weights; bright is much, hatched is out of reach."
)
_SHADES = 24


def beside(shown: Card) -> Beside:
    """The map or the picture of a card, if it has one, and links to its page and its lesson, as
    HTML."""
    found = part_pictures.sketch(shown)
    if found is not None:
        small = part_pictures.thumbnail(shown)
        return Beside(part_pictures.as_html(shown), escape(found.words), _links(shown.name), small)
    drawn = _maps().get(shown.name)
    picture = "" if drawn is None else _image(drawn, f"Implied map of {shown.title}")
    return Beside(picture, CAPTION, _links(shown.name))


@remembered
def _maps() -> dict[str, Tensor]:
    """The map of each mechanism (n, m), the mean of its heads; NaN where it is masked in all of
    them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = _sequence()
        found = {layer.card.name: _mean(map_of(layer, x).weights) for layer in layers(DIM, HEADS)}
        for scheme in cards():
            if scheme.role in ("encode", "bias"):
                module = build("full", dim=DIM, heads=HEADS, positions=scheme.name)
                found[scheme.name] = _mean(mixing_matrix(module, x).matrix[0])
    return found


def _sequence() -> Tensor:
    """(1, n, dim): neighbours are alike, so that maps have some structure."""
    steps = torch.randn(1, LENGTH + 4, DIM)
    return 6 * torch.nn.functional.avg_pool1d(steps.mT, 5, stride=1).mT


def _mean(weights: Tensor) -> Tensor:
    weights = weights.detach()[None] if weights.dim() == 2 else weights.detach()
    mean = weights.abs().mean(dim=0)
    return mean.masked_fill((weights == 0).all(dim=0), torch.nan)


def _image(weights: Tensor, text: str) -> str:
    values = weights.numpy()
    filled = np.nan_to_num(values)  # a row may be masked everywhere
    share = filled / np.maximum(filled.max(axis=1, keepdims=True), 1e-9)
    levels = np.repeat(np.repeat(np.rint(share * (_SHADES - 1)), CELL, 0), CELL, 1).astype(int)
    masked = np.repeat(np.repeat(np.isnan(values), CELL, 0), CELL, 1)
    i, j = np.indices(levels.shape)
    levels[masked] = np.where((i + j) % 4 == 0, _SHADES, -1)[masked]
    shades = [CIVIDIS[round(at * (len(CIVIDIS) - 1) / (_SHADES - 1))] for at in range(_SHADES)]
    address = b64encode(png(levels, [*shades, "#8a929c"])).decode()
    return (
        f'<img src="data:image/png;base64,{address}" alt="{escape(text)}" '
        f'width="{SIDE}" height="{SIDE}">'
    )


def _links(name: str) -> str:
    return " · ".join(f'<a href="{escape(url)}">{escape(text)}</a>' for url, text in links(name))


@functools.cache
def links(name: str) -> tuple[tuple[str, str], ...]:
    """Address and text of a mechanism's page and of the lesson that names it most, if there is."""
    if name not in pages():  # somebody's own card
        return ()
    root = _repository()
    path = pages()[name].replace(".", "/")
    page = path if (LESSONS.parent / path).is_dir() else f"{path}.py"
    found = [(f"{root}/{page}", "page")]
    found += [
        (f"{root}/notebooks/{one['path']}", f"lesson {one['path'].partition('_')[0]}")
        for one in lessons(card(name))[:1]
    ]
    if card(name).role == "objective":
        found.append((f"{root}/widgets/README.md#whatishidden", "on a text"))
    return tuple(found)


@functools.cache
def _repository() -> str:
    """Where the files can be read on the web."""
    root = LESSONS.parent
    if (root / "pyproject.toml").is_file():
        place = home(root)
    else:
        urls = importlib.metadata.metadata("attnlab").get_all("Project-URL") or []
        address = next(url for url in urls if url.startswith("Repository"))
        place = Home(address.partition("github.com/")[2], "main")
    return f"https://github.com/{place.slug}/blob/{place.branch}"
