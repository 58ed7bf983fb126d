"""Old import paths are answered with the new ones, and each new one leads somewhere."""

import importlib

import pytest

import attnlab
from attnlab.core.card import Card
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


def test_a_renamed_attribute_or_argument_is_answered():
    with pytest.raises(AttributeError, match=r"^Card\.because is now causal_reason$"):
        attnlab.card("fnet").because  # noqa: B018
    with pytest.raises(TypeError, match=r"^small= of Card is now small_options=$"):
        Card(name="mine", small={})
    with pytest.raises(AttributeError, match="'Card' object has no attribute 'nosuch'"):
        attnlab.card("fnet").nosuch  # noqa: B018
