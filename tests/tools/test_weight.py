"""The weights of a small tree, counted by hand."""

import subprocess

import pytest

from tools import weight

BODY = "\n".join(f"    total = total + {index}" for index in range(9))
FILES = {
    "attnlab/mechanisms/fixed/comb.py": "\n\ndef naive():\n    pass\n\nCARD = 1\n",
    "attnlab/mechanisms/fixed/etc/__init__.py": "from attnlab.core import heads\n",
    "attnlab/core/heads.py": f"from attnlab.models import tiny\n{BODY}\n",
    "attnlab/models/tiny.py": f"def build():\n    from attnlab.core.heads import x\n{BODY}\n",
    "attnlab/models/typed.py": "if TYPE_CHECKING:\n    import attnlab.models.typed\n",
    "tests/mechanisms/fixed/test_comb.py": "\n\n\n",
    "tests/test_rooms.py": 'FLOORS = {"core": 0, "mechanisms": 1, "models": 2}\n',
    "widgets/src/lab.js": "comb(1);\nhoneycomb(2);\ncomb_2(3);\n",
    "widgets/node_modules/big.js": "comb\n" * 99,
    "notebooks/10_a.ipynb": '{"cells": [{"source": ["# Comb\\n", "1"]}, {"source": "2"}]}',
}


@pytest.fixture
def house(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("    total", "total") if "core" in name else text)
    return tmp_path


def test_lines_by_room(house):
    found = weight.weigh(house)
    assert found["lines"] == {
        **{"library": 6 + 1 + 10 + 11 + 2, "tests": 3 + 1},
        **{"lessons": 3, "widgets, JS": 3},
    }
    assert found["lines by room"]["attnlab/models"] == 13


def test_a_mechanism_brings_its_files_and_the_lines_that_name_it(house):
    assert weight.weigh(house, ["comb"])["lines of comb"] == {
        **{"attnlab/mechanisms": 6, "lessons": 1, "tests/mechanisms": 3, "widgets, JS": 2},
        "sum": 12,
    }


def test_pages_imports_and_duplicates(house):
    found = weight.weigh(house)
    assert found["pages"] == {
        **{"pages": 1, "lines of the longest": 6, "longer than 280 lines": 0},
        "median line of `naive`": 3,
    }
    assert found["imports"] == {"modules in a circle": 2, "arrows up": 1}
    assert found["lines in runs of 8 that stand twice"]["library"] == 18


def test_a_commit_stands_beside_the_tree(house, capsys):
    for command in ("init -q", "add -A", "commit -qm first"):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, "-C", house, *command.split()], check=True)
    (house / "attnlab/core/heads.py").write_text("\n")
    weight.main(["--since", "HEAD", "--mechanism"], house)
    printed = capsys.readouterr().out
    assert (
        "| lines | HEAD | now | change |\n|---|---:|---:|---:|\n| library | 30 | 21 | -9 |"
        in printed
    )
    assert "| modules in a circle | 2 | 0 | -2 |" in printed
    with pytest.raises(SystemExit):
        weight.main(["--since", "nowhere"], house)
    assert "git knows no commit 'nowhere'" in capsys.readouterr().err


def test_this_repository_has_no_circle_and_no_arrow_up():
    assert weight.weigh(weight.ROOT)["imports"] == {"modules in a circle": 0, "arrows up": 0}
