"""Low-rank and synthetic attention: maps with fewer degrees of freedom than n × n."""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
