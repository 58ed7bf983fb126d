"""Kept: what lessons have trained before."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlab.pretrained import kept
from attnlab.pretrained.kept import Kept
from tools import kept as tool

LESSONS = {path.stem[:2]: path for path in Path("notebooks").glob("[0-9]*_*.ipynb")}
FILES = sorted(kept.FOLDER.glob("*.safetensors"))


def grown(model: nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(3)


def refused(model: nn.Module) -> None:
    raise AssertionError("it was trained")


def test_what_is_trained_anew_is_loaded_afterwards(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    anew = Kept("99", anew=True)
    model = anew.trained("a, seed 1", nn.Linear(3, 2), grown)
    assert anew.number("score", lambda: 7.25) == 7.25
    assert anew.save() == tmp_path / "99.safetensors"
    loaded = Kept("99")
    again = loaded.trained("a, seed 1", nn.Linear(3, 2), refused)
    assert loaded.names == ["a, seed 1", "score"]
    assert not again.training
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=2**-10, atol=0)  # half precision
    assert loaded.number("score", lambda: 0.0) == 7.25


def test_what_is_not_kept_is_said(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    anew = Kept("99", anew=True)
    anew.trained("a, seed 1", nn.Linear(3, 2), grown)
    anew.save()
    with pytest.raises(ValueError, match="did you mean '99'"):
        Kept("98")
    with pytest.raises(ValueError, match="no kept model of lesson 99 'a, seed 2'"):
        Kept("99").trained("a, seed 2", nn.Linear(3, 2), grown)
    with pytest.raises(ValueError, match="no kept number of lesson 99 'score'"):
        Kept("99").number("score", lambda: 0.0)
    with pytest.raises(ValueError, match=r"do not fit this model.*Kept\(\"99\", anew=True\)"):
        Kept("99").trained("a, seed 1", nn.Linear(3, 3), grown)


def test_a_damaged_file_is_refused(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    anew = Kept("99", anew=True)
    anew.trained("a", nn.Linear(3, 2), grown)
    path = anew.save()
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ValueError, match="damaged or changed"):
        Kept("99")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_small_and_its_lesson_asks_for_it(path: Path) -> None:
    assert path.stat().st_size <= tool.LARGEST
    text = LESSONS[path.stem].read_text(encoding="utf-8")
    assert f'Kept(\\"{path.stem}\\")' in text


def test_every_lesson_that_keeps_models_has_its_file() -> None:
    for number, path in LESSONS.items():
        asked = set(re.findall(r'Kept\(\\"(\d\d)\\"\)', path.read_text(encoding="utf-8")))
        assert asked <= {number}
        assert all((kept.FOLDER / f"{n}.safetensors").exists() for n in asked)


def test_a_lesson_is_trained_anew_as_it_stands_and_saved_at_its_end() -> None:
    path = LESSONS["14"]
    cells = [cell for cell in tool.anew(path).cells if cell.cell_type == "code"]
    assert sum('Kept("14", anew=True)' in cell.source for cell in cells) == 1
    assert not any('Kept("14")' in cell.source for cell in cells)
    assert ".save()" in cells[-1].source
    assert 'Kept(\\"14\\")' in path.read_text(encoding="utf-8")


def test_a_lesson_that_keeps_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tool.main([str(LESSONS["00"])])
    assert "it keeps nothing" in capsys.readouterr().err
