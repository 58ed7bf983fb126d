"""What `.ci/overlay.py` lays over the environment, and how it compares the record of Colab."""

import re
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def overlay(script):
    return script("overlay")


def test_colab_is_what_shows_a_widget_and_never_torch(overlay):
    found = overlay.colab()
    assert {"ipywidgets", "anywidget", "plotly", "traitlets", "ipykernel", "ipython"} <= set(found)
    assert not {"torch", "numpy", "python"} & set(found)


def test_the_lowest_are_the_bounds_and_never_torch(overlay):
    found = overlay.lowest()
    assert "torch" not in found
    lines = (ROOT / "pyproject.toml").read_text()
    for name in ("numpy", "jaxtyping", "traitlets", "ipywidgets", "plotly", "pillow"):
        assert f'"{name}>={found[name]}"' in lines


def test_what_shows_a_widget_on_colab_is_between_the_lowest_and_the_pinned_versions(overlay):
    """Were it not, the tests that run with both ends alone would say nothing of Colab."""
    lowest, pins = overlay.lowest(), (ROOT / "constraints.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", pins, re.MULTILINE))
    for name in ("anywidget", "ipywidgets", "plotly", "traitlets"):
        found = Version(overlay.colab()[name])
        assert Version(lowest[name]) <= found <= Version(pinned[name]), name


def test_a_newer_list_is_seen(overlay, tmp_path):
    record = overlay.recorded(overlay.RECORD.read_text())
    newest = "".join(f"{name}=={version}\n" for name, version in record.items())
    assert overlay.differences(newest) == []
    moved = newest.replace(f"plotly=={record['plotly']}", "plotly==99.1")
    moved = moved.replace(f"traitlets=={record['traitlets']}\n", "")
    assert overlay.differences(moved) == [
        f"plotly: {record['plotly']} in the record, 99.1 in Colab's list",
        f"traitlets: {record['traitlets']} in the record, nothing in Colab's list",
    ]


@pytest.mark.parametrize("given", [[], ["colab"], ["lowest", "a", "b"], ["compare", "a", "b"]])
def test_other_calls_say_what_it_can_do(overlay, given):
    with pytest.raises(SystemExit, match="which PYTHONPATH lays over the environment"):
        overlay.main(*given or [""])
