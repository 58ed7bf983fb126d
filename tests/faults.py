"""Many small cases in one test, each of which is tried, and every one that fails is named.

A test of its own costs pytest some milliseconds, in each of its processes: more than a case that
takes one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Faults(dict[str, str]):
    """Name of a case → what went wrong with it."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Tries one case from the seed that a test begins with; whatever it raises is its fault."""
        torch.manual_seed(0)
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self[name] = f"{type(error).__name__}: {error}"

    def none(self) -> None:
        """Fails with the names of all that went wrong."""
        assert not self, "\n".join(f"{name}: {fault}" for name, fault in self.items())
