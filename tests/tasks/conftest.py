"""What the tests of tasks share: every task, in every kind it has."""

import pytest

from attnlab.tasks import Task, task

VARIANTS = [
    ("addition", {"digits": 4}),
    ("addition", {"digits": 3, "reverse": True}),
    ("documentation", {"unit": "bytes", "length": 23}),
    ("documentation", {"unit": "bpe", "length": 23, "bpe_size": 300}),
    ("topics", {"unit": "bytes", "length": 23}),
    ("topics", {"unit": "bpe", "length": 23, "bpe_size": 300}),
    ("copy_first", {"length": 13, "levels": 3}),
    ("refrain", {"period": 7, "symbols": 17, "times": 3}),
    ("denoising", {"steps": 23, "marked": 3, "closing": 7}),
    ("denoising", {"steps": 23, "marked": 5, "closing": 0, "coding": "2021"}),
    ("set_maximum", {"fewest": 2, "most": 7, "levels": 3}),
    ("set_maximum", {"fewest": 5, "most": 5}),
    ("gaussian_mixtures", {"clusters": 5, "fewest": 2, "points": 13}),
    ("digits", {}),
    ("digits", {"kind": "language_model"}),
    ("digits", {"unit": "patches"}),
    ("digits", {"unit": "patches", "patch": 4}),
    ("copying", {"items": 5, "symbols": 7}),
    ("copying", {"items": 5, "symbols": 7, "kind": "encoder_decoder"}),
    ("reversing", {"items": 5, "symbols": 7}),
    ("reversing", {"items": 5, "symbols": 7, "kind": "encoder_decoder"}),
    ("sorting", {"items": 5, "symbols": 7}),
    ("sorting", {"items": 5, "symbols": 7, "kind": "encoder_decoder"}),
    ("recall", {"pairs": 3, "keys": 5, "values": 7}),
    ("recall", {"pairs": 5, "queries": 3, "keys": 7, "values": 11}),
    ("selective_copying", {"items": 5, "symbols": 7, "places": 13}),
    ("selective_copying", {"items": 5, "symbols": 7, "places": 11, "spacing": "together"}),
    ("induction", {"length": 13, "symbols": 17}),
    ("needle", {"length": 23, "keys": 5, "words": 7}),
    ("duplication", {"items": 14, "symbols": 7}),
    ("lookup", {"length": 29, "questions": 5, "keys": 11, "values": 3, "words": 13}),
    ("word_order", {"change": "swap", "length": 13, "words": 70}),
    ("gist", {"length": 29, "stretch": 13, "questions": 5, "words": 3}),
    ("listops", {"leaves": 17, "arguments": 3}),
    ("listops", {"form": "words"}),
    ("listops", {"form": "brackets", "shallowest": 3, "deepest": 5}),
    ("listops", {"form": "graph", "leaves": 13}),
    ("graph_questions", {}),
    ("graph_questions", {"question": "triangles", "nodes": 13, "fewest": 11, "most": 3}),
    ("graph_questions", {"question": "rings", "nodes": 17, "fewest": 13}),
    ("node_labels", {"graph": "calls"}),
    ("node_labels", {"graph": "karate_club"}),
    ("node_labels", {"graph": "miserables"}),
    ("node_labels", {}),
    ("two_dialects", {"words": 5}),
    ("two_dialects", {"words": 7, "symbols": 5, "shortest": 2, "coin": "word"}),
    ("two_dialects", {"coin": "source"}),
    ("number_words", {}),
    ("number_words", {"digits": 3}),
    ("ditto", {"length": 13, "symbols": 7}),
    ("ditto", {"length": 23, "symbols": 5, "every": 3, "own": False}),
    ("ditto", {"length": 23, "symbols": 5, "every": 2, "start": "none", "scored": "marks"}),
    ("scan", {}),
    ("scan", {"split_by": "length", "cutoff": 26}),
    ("python_types", {}),
    ("python_types", {"form": "words", "deepest": 5}),
    ("python_types", {"question": "part", "form": "brackets", "leaves": 13}),
    ("logic", {"leaves": 7, "variables": 3}),
    ("logic", {"form": "words"}),
    ("logic", {"question": "entailment", "form": "brackets"}),
    ("logic", {"question": "entailment", "form": "words"}),
    ("agreement", {"most": 1, "depth": 7, "words": 17}),
    ("agreement", {"form": "words", "fewest": 1, "most": 3}),
    ("agreement", {"form": "brackets", "most": 0}),
    ("linked_pages", {"words": 5}),
    ("linked_pages", {"hops": 2, "pages": 7, "words": 5}),
    ("citations", {"words": 5}),
    ("group_words", {"length": 13}),
    ("group_words", {"length": 7, "group": "S5", "swaps": True}),
    ("overwriting", {"keys": 5, "rounds": 3, "queries": 3, "values": 7}),
    ("overwriting", {"keys": 5, "rounds": 3, "once": 2, "queries": 3, "values": 7}),
    ("tables", {}),
    ("tables", {"of": "columns", "rows": 3}),
    ("tables", {"ask": "largest", "subjects": ("http", "characters")}),
]


@pytest.fixture(params=VARIANTS, ids=lambda v: " ".join([v[0], *map(str, v[1].values())]))
def any_task(request: pytest.FixtureRequest) -> Task:
    name, options = request.param
    return task(name, **options)


@pytest.fixture
def variant_names() -> set[str]:
    return {name for name, _ in VARIANTS}
