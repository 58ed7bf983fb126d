"""A small model that has not been trained."""

from attnlab_widgets.attention_explorer import AttentionExplorer


def example() -> AttentionExplorer:
    return AttentionExplorer("a for loop", untrained={"dim": 8, "layers": 1, "heads": 2})
