"""Sparse attention: layouts of the allowed pairs, and the forms that compute these pairs alone."""
