"""Attention that costs what its pattern allows: layouts, and forms that run them."""
