"""What all other packages build on: shapes, cards, patterns, probes, heads, the masked softmax."""
