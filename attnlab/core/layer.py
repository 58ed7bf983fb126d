"""The base of a page's module: it prints what it was built with."""

from torch import nn


class Layer(nn.Module):
    """A module that prints its ``options`` that differ from their defaults, whether it is causal,
    its form, and its ``dim`` and number of ``heads`` where it keeps these numbers."""

    def extra_repr(self) -> str:
        shown = (self._shown(name) for name in ("dim", "heads", "options", "causal", "form"))
        return ", ".join(filter(None, shown))

    def _shown(self, name: str) -> str:
        known = vars(self)
        if name not in known:
            return ""
        return str(known[name]) if name == "options" else f"{name}={known[name]!r}"
