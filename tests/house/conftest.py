"""What the tests of the house share."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """``script("lessons")`` is the module of ``.ci/lessons.py``."""

    def loaded(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, ROOT / f".ci/{name}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded
