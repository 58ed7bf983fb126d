"""Memory: what is carried from one segment to the next, and what fits through a few slots."""
