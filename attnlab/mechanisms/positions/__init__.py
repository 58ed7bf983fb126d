"""Positions and words: how the order of a sequence and its symbols become vectors."""
