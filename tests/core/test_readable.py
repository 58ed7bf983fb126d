"""A page's own patterns are read like the algebra's, once it is declared readable."""

from dataclasses import dataclass

import pytest

from attnlab.core import patterns
from attnlab.core.patterns import Pattern, reading


def test_a_pages_own_pattern_is_read_from_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAGES", {})

    @patterns.readable
    @dataclass(frozen=True, repr=False)
    class After(Pattern):
        length: int
        description = "each position sees what comes later"

        @property
        def code(self) -> str:
            return f"After({self.length})"

        def allows(self, i, j):
            return j >= i + self.length

    seen = After(3).causal() | patterns.local(1)
    assert patterns.read(seen.key) == seen
    assert "After" not in patterns.primitives()  # menus of the algebra do not grow
