"""Fixed patterns: who may see whom is decided before any token is read."""
