"""Dense attention: every query is compared with every key.

Exact and quadratic in the length; the other mechanisms are compared with it.
"""
