"""The errors of training that a caller may want to catch."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used here. Nothing was changed or removed."""


class TrainingError(RuntimeError):
    """Training cannot go on. `step` says when; `layer` names the layer at fault, if known."""

    def __init__(self, message: str, *, step: int | None = None, layer: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.layer = layer
