"""Structure beyond the sequence: trees."""
