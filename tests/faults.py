"""Many small cases in one test, each of which is tried, and every one that fails is named.

A test of its own costs pytest some milliseconds, in each of its processes: more than a case that
takes one. Whether settings of PyTorch are left changed is asked once, after all cases of a test.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

TIMEOUT = "from pytest-timeout"  # in the words by which that one ends a test


class Faults(dict[str, str]):
    """Name of a case → what went wrong with it."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Tries one case from the seed that a test begins with; whatever it raises is its fault,
        but for what ends the whole test: an interrupt, or its time being up."""
        torch.manual_seed(0)
        try:
            yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException as error:
            if isinstance(error, pytest.fail.Exception) and TIMEOUT in str(error):
                raise
            self[name] = f"{type(error).__name__}: {error}"

    def none(self) -> None:
        """Fails with the names of all that went wrong."""
        assert not self, "\n".join(f"{name}: {fault}" for name, fault in self.items())
