"""Positions: how a model is told the order of its tokens, and how tokens become vectors."""
