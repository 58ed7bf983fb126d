"""The error of processes that work together."""


class ProcessesError(RuntimeError):
    """A process died, did not come in time, or was asked for something else than the others."""
