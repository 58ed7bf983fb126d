"""Costs beside a claim of somebody else's."""

from attnlab_widgets.cost_lab import CostLab


def example() -> CostLab:
    return CostLab(claims={"longformer": "n"})
