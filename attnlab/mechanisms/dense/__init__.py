"""Dense attention: every query is compared with every key.

Exact, quadratic, and the measure of all others.
"""
