"""Low rank and synthetic: the n × n map is made of less than a comparison of all with all."""
