"""Low-rank and synthetic attention: maps of fewer degrees of freedom than n × n."""
