"""The ground floor: shapes, cards, patterns, probes, heads and the masked softmax."""
