"""The stored results of an experiment: beside a notebook, or downloaded where that stands alone."""

import json
import shutil
import urllib.request
from pathlib import Path

import pytest

from attnlab import experiments
from attnlab.readme import home

ROOT = Path(__file__).parents[2]
NAME = "11_needle.json"


def test_beside_the_notebook(monkeypatch):
    monkeypatch.chdir(ROOT / "notebooks")
    rows = json.loads(Path("assets", NAME).read_text())["experiments"]["needle"]
    found = experiments.stored(NAME, "needle")
    assert len(found) == len(rows) > 1
    assert found[rows[-1]["figure"]] == rows[-1]["measured"]
    with pytest.raises(ValueError, match=r"holds the experiments \['needle'\], not 'straw'"):
        experiments.stored(NAME, "straw")


def test_downloaded_once_where_the_notebook_stands_alone(monkeypatch, tmp_path):
    asked = []

    def download(address, path):
        asked.append(address)
        shutil.copy(ROOT / "notebooks/assets" / NAME, path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(urllib.request, "urlretrieve", download)
    first = experiments.stored(NAME, "needle")
    assert experiments.stored(NAME, "needle") == first
    place = home(ROOT)
    folder = f"https://raw.githubusercontent.com/{place.slug}/{place.branch}/attnlab/experiments/assets/"
    assert asked == [folder + NAME]
