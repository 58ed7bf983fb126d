"""Positions: how a model learns the order of what it reads."""
