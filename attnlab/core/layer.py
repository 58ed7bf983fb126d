"""The base of a page's module: it prints what it was built with."""

from torch import nn


class Layer(nn.Module):
    """A module that prints its ``options`` that differ from their defaults, whether it is causal,
    its form, and its ``dim`` and number of ``heads`` where it keeps these numbers."""

    def extra_repr(self) -> str:
        known = vars(self)
        shown = {name: f"{name}={known[name]!r}" for name in ("dim", "heads") if name in known}
        shown["options"] = str(known.get("options", ""))
        shown |= {name: f"{name}={known[name]!r}" for name in ("causal", "form") if name in known}
        return ", ".join(filter(None, shown.values()))
