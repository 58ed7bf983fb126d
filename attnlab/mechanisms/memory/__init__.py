"""Memory: states carried along a sequence, stored patterns, and a few vectors for a whole set."""
