"""Low-rank and synthetic attention: maps with fewer degrees of freedom than n × n."""
