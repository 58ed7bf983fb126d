"""What `.ci/overlay.py` lays over the environment, and how it compares the record of Colab."""

from pathlib import Path

import pytest

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
