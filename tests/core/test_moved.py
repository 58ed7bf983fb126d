"""Old import paths are answered with the new ones, and each new one leads somewhere."""

import importlib

import pytest

from attnlab.core.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_names_the_new_one(old):
    with pytest.raises(ModuleNotFoundError, match=r"^attnlab[a-z_]*\..+ is now [at].+\..+"):
        importlib.import_module(old)
    for new in MOVED[old].split(" or "):
        importlib.import_module(new)


def test_a_name_is_answered_too():
    with pytest.raises(ModuleNotFoundError, match=r"attnlab.core.graph is now attnlab.structures"):
        exec("from attnlab.core import graph", {})
    with pytest.raises(ImportError, match="cannot import name 'nosuch'"):
        exec("from attnlab.core import nosuch", {})
