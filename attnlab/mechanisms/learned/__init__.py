"""Learned patterns: which keys a query attends to depends on the content."""
