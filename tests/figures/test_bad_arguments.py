"""Bad arguments: every call draws a picture or is refused in a sentence of this package."""

import inspect
import linecache
import math
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

import attnlab
from attnlab.core.patterns import full, local
from attnlab.figures.claims import claimed_costs
from attnlab.figures.clusters import cluster_grid
from attnlab.figures.costs import cost_curves, trade_off
from attnlab.figures.dots import score_dots
from attnlab.figures.examples import image_sequence, token_strip
from attnlab.figures.gallery import map_gallery
from attnlab.figures.head_scatter import head_scatter
from attnlab.figures.images import image_grid
from attnlab.figures.losses import loss_curves
from attnlab.figures.maps import film, head_grid, heat_map
from attnlab.figures.part_bars import part_bars
from attnlab.figures.patches import patch_maps
from attnlab.figures.patterns import density_curves, head_patterns, pattern_map
from attnlab.figures.pixels import pixel_receptive_field
from attnlab.figures.receptive_field import receptive_field_film
from attnlab.figures.roofline import roofline
from attnlab.figures.score_table import score_table
from attnlab.figures.spectra import spectrum_curves
from attnlab.figures.theme import contrast
from attnlab.figures.timeline import process_timeline

TOKENS, PIXELS = ["a", "b", "c"], np.eye(5, dtype=bool)
ROWS = [{"step": step, "loss": 1.0 + step} for step in range(4)]
GOOD = {
    heat_map: {"weights": np.full((3, 7), 0.2), "queries": TOKENS, "keys": [*"abcdefg"]}
    | {
        "mask": np.ones((3, 7), bool),
        "largest": 1.0,
        "groups": ([0] * 3, [0] * 7),
        "quantity": "weight",
        "root": True,
        "axes": ("a", "b"),
        "untrained": True,
    },
    head_grid: {"weights": np.full((2, 5, 3, 3), 0.3), "tokens": TOKENS}
    | {"mask": np.ones((3, 3), bool), "largest": 1.0, "quantity": "weight", "untrained": True}
    | {"root": True},
    film: {"weights": np.full((2, 3, 3), 0.3), "steps": [1, 2], "tokens": TOKENS}
    | {"mask": np.ones((3, 3), bool), "largest": 1.0, "along": "step", "quantity": "weight"}
    | {"root": True, "untrained": [1]},
    map_gallery: {"maps": {"a": np.eye(3), "b": np.ones((3, 3))}, "tokens": TOKENS}
    | {"columns": 2, "untrained": ["b"]},
    loss_curves: {"runs": {"full": ROWS}, "unit": "nats", "log": False},
    cost_curves: {"series": {"full": [(3, 5.0), (7, 11.0)]}, "exponents": {"full": 1.0}}
    | {"quantity": "time", "length": "n", "letter": "n", "claims": {"full": "n²"}}
    | {"intervals": {"full": (1.5, 2)}, "crossovers": {"faster": (5, 4, 6)}, "limits": {"a": 9}},
    trade_off: {"points": {"full": (1.0, [3.0, 5.0])}, "cost": "pairs", "score": "loss"}
    | {"front": "highest", "log": True},
    roofline: {"points": {"full": (2e9, 4e6, 0.1)}, "peak": 1e11, "bandwidth": 1e10},
    claimed_costs: {"cards": [attnlab.card("full")], "n": 64, "what": "time", "form": "naive"}
    | {"values": {"w": 4}},
    spectrum_curves: {"series": {"full": [0.5, 1.0]}, "share": 0.9, "quantity": "energy"},
    score_dots: {"scores": {"task": {"full": [1.0, 2.0]}}, "limits": (0, 10), "quantity": "%"},
    score_table: {"scores": {"task": {"full": [1.0, 2.0]}}, "guesses": {"task": 1.0}}
    | {"learned": 90.0, "near": 3.0},
    part_bars: {"parts": {"full": [1.0, 2.0]}, "quantity": "logit", "most": 3},
    head_scatter: {"heads": {"full": ([1.0, 2.0], 0.5)}, "across": "a", "up": "b"}
    | {"kinds": {"full": "mixed"}},
    image_grid: {"images": np.ones((2, 3, 5, 7)), "rows": ["a", "b"], "columns": TOKENS}
    | {"largest": 1.0},
    cluster_grid: {"points": np.ones((3, 5, 2)), "found": {"a": np.ones((3, 2, 4))}}
    | {"true": np.ones((3, 7, 4)), "columns": TOKENS},
    patch_maps: {"maps": np.ones((2, 3, 5, 7)), "rows": ["a", "b"], "columns": TOKENS}
    | {"query": (1, 2), "ink": np.eye(5, 7, dtype=bool), "largest": 1.0, "quantity": "weight"}
    | {"root": True},
    token_strip: {"tokens": TOKENS, "scored": [True, False, True], "targets": TOKENS}
    | {"mark": "framed"},
    image_sequence: {"image": np.ones((4, 6)), "patch": 2},
    pattern_map: {"pattern": local(1), "n": 7, "block": 2},
    head_patterns: {"patterns": [local(1), full()], "n": 7, "names": ["a", "b"], "block": 2},
    density_curves: {"patterns": {"window": local(1)}, "lengths": [5, 7]},
    receptive_field_film: {"patterns": local(1), "n": 7, "layers": 2, "residual": True},
    pixel_receptive_field: {"panels": {"a": PIXELS}, "pixel": (1, 2)}
    | {"future": {"a": PIXELS}, "blocks": {"a": np.zeros((5, 5), int)}},
    process_timeline: {"panels": {"a": {"p": [("work", 0, 1.5)]}}, "unit": "ms"},
    contrast: {"first": "#000000", "second": "#ffffff"},
}
for _function, _good in GOOD.items():
    if _function is not contrast:
        _good |= {"title": "Title", "theme": "light"}

WRONG_EVERYWHERE = [object(), math.nan, b"x", {"a": object()}, [object()], lambda: 3]
BAD = [
    *(None, True, 1.5, -3, 0, 10**12, "12", [], {}, (), [1.7], [math.nan], ["a", None]),
    *(np.full((3, 5), np.nan), np.ones((2, 2, 2, 2, 2)), np.array([]), np.array([["a"]])),
    *(np.full((3, 7), 1e308), torch.ones(3, 5, dtype=torch.cfloat), torch.ones(3, 3).to_sparse()),
    *(torch.ones(3, 3, device="meta"), {"a": None}, {"a": "x"}, {"a": []}, {1: 2}, {"a": (1,)}),
    *({"a": {"b": "x"}}, {"a": [(1, 2, 3)]}, {"a": [{"step": "x", "loss": 1.0}]}, {"a": [(0, 1)]}),
    *([[1, 2], [3]], [local(1), 3], {"a": lambda n: n}, (1.5, 2), (9, 9), {"w": -1}, {"full": []}),
    *({"full": "x"}, {"full": [math.nan]}, {"task": {"full": [None]}}, {"window": 3}),
]


def is_ours(error: Exception) -> bool:
    """Raised by a `raise` of attnlab, not by a library below."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    home = Path(attnlab.__file__).parent in Path(last.filename).parents
    return home and linecache.getline(last.filename, last.lineno).strip().startswith("raise ")


@pytest.mark.parametrize("function", GOOD)
def test_each_argument_is_tried(function):
    assert set(GOOD[function]) == set(inspect.signature(function).parameters)
    function(**GOOD[function])


CASES = [(function, name) for function, good in GOOD.items() for name in good]


@pytest.mark.parametrize(("function", "name"), CASES)
def test_what_is_wrong_everywhere_is_refused(function, name):
    for value in WRONG_EVERYWHERE:
        if name in ("tokens", "targets", "steps", "queries", "keys") and isinstance(value, list):
            continue  # any object may be a token
        with pytest.raises((TypeError, ValueError)) as caught:
            function(**{**GOOD[function], name: value})
        assert is_ours(caught.value), f"{name}={value!r}: {caught.value!r}"


@pytest.mark.parametrize(("function", "name"), CASES)
def test_what_is_refused_is_refused_in_a_sentence(function, name):
    for value in BAD:
        refused = None
        try:
            function(**{**GOOD[function], name: value})
        except (TypeError, ValueError) as error:
            refused = error
        assert refused is None or is_ours(refused), f"{name}={value!r}: {refused!r}"
