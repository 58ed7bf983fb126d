"""The stored results of an experiment, as lessons read them."""

import json

import pytest

from attnlab import experiments

NAME = "11_needle.json"


def test_what_is_stored_is_read_from_any_folder(monkeypatch, tmp_path):
    rows = json.loads((experiments.ASSETS / NAME).read_text())["experiments"]["needle"]
    monkeypatch.chdir(tmp_path)
    found = experiments.stored(NAME, "needle")
    assert len(found) == len(rows) > 1
    assert found[rows[-1]["figure"]] == rows[-1]["measured"]


def test_what_is_not_stored_is_refused_by_name():
    with pytest.raises(ValueError, match=r"holds the experiments \['needle'\], not 'straw'"):
        experiments.stored(NAME, "straw")
    with pytest.raises(ValueError, match="there is no asset '11_straw"):
        experiments.asset("11_straw.json")
