"""`make new`: a page and its test under another name, beside those that they were copied from."""

import ast
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE, TEST = "attnlab/mechanisms/convolution/fnet.py", "tests/mechanisms/convolution/test_fnet.py"


@pytest.fixture
def new(script):
    return script("new")


@pytest.fixture
def house(tmp_path):
    for name in (PAGE, TEST, "attnlab/mechanisms/convolution/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_names_are_changed_everywhere(new, house, capsys):
    assert new.main(["hartley_mixing", "convolution", "fnet"], house) == 0
    page = (house / "attnlab/mechanisms/convolution/hartley_mixing.py").read_text()
    test = (house / "tests/mechanisms/convolution/test_hartley_mixing.py").read_text()
    assert {"HartleyMixing"} <= {
        node.name for node in ast.walk(ast.parse(page)) if isinstance(node, ast.ClassDef)
    }
    assert 'name="hartley_mixing"' in page
    assert "fnet" not in page
    assert "aliases" not in page, "they are the other's"
    assert "fnet" not in test.replace("modeling_fnet", ""), "another library's keeps its name"
    assert "from attnlab.mechanisms.convolution import hartley_mixing" in test
    assert "make derived" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["Hartley", "convolution", "fnet"], "small letters"),
        (["hartley", "fourier", "fnet"], "there are convolution"),
        (["hartley", "convolution", "fourier"], "there is no page fourier.py; there are fnet"),
        (["fnet", "convolution", "fnet"], "convolution/fnet.py is there already"),
    ],
)
def test_what_cannot_be_made_is_said(new, house, capsys, given, words):
    with pytest.raises(SystemExit):
        new.main(given, house)
    assert words in capsys.readouterr().err
