"""What does any model attend to? One line runs it and shows all of its heads.

    attnlab.view(model, "The cat sat on the mat", tokenizer)

The model runs once under ``attnlab.watch``, without gradients and in evaluation mode; afterwards it
is as it was.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.lens.sources.inputs import Inputs, inputs_of
from attnlab.lens.sources.joined import Windowed
from attnlab.lens.sources.patches import at_markers, checked_grid, side_by_side
from attnlab.lens.sources.tokens import Found
from attnlab.lens.sources.windows import watch_windows
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.attention_view import AttentionView


def view(
    model: nn.Module,
    inputs: Any,
    tokenizer: Any = None,
    *,
    target: Any = None,
    generate: int | None = None,
    only: str | Sequence[str] | None = None,
    image: Any = None,
    grid: tuple[int, int] | None = None,
    batch: int = 0,
    theme: str = "auto",
) -> AttentionView:
    """Run ``model`` on ``inputs`` and show what attends to what: an `AttentionView`.

    ``inputs``     a text (with a tokenizer), a tensor of tokens (n,) or (b, n), the outputs of
                   ``generate``, an image as ``pixel_values`` (b, channels, height, width) or, with
                   an image processor, a PIL image or an array, a sound as an array (with its
                   processor), a dict of what the model takes, or a tuple of its arguments
    ``tokenizer``  of the model: a tokenizer or processor of Hugging Face, one of ``tokenizers``, or
                   a task of attnlab; without it tokens are called by their numbers
    ``target``     what the decoder of an encoder-decoder reads: a text, tokens, or the outputs of
                   ``generate``; without it, what the model itself generates
    ``generate``   so many tokens are generated first, the most likely each (20 for an
                   encoder-decoder without ``target``)
    ``only``       the modules to record, as in ``attnlab.watch``; ``batch`` the row to show
    ``image``      what a model saw that is given patches or vectors instead of pixels; a list of
                   images of one size where its text has several. Tokens that are the ``marker`` of
                   the model are drawn as their patches, or each image as one
    ``grid``       (rows, columns) of the patches of an image

    Raises TypeError or ValueError with a sentence that says what to give.
    """
    if not isinstance(model, nn.Module) or isinstance(model, type):
        raise TypeError(f"`model` should be an nn.Module, got {model!r}; load it first")
    batch = check_integer("`batch`", batch, at_least=0)
    steps = None if generate is None else check_integer("`generate`", generate, at_least=1)
    with mode(model, training=False), torch.no_grad():
        given = inputs_of(model, inputs, tokenizer, target, steps)
        with watch_windows(model) as windows, watch(model, only=only) as seen:
            given.run(model)
        if not len(seen):
            raise ValueError(f"there is nothing to show: {repr(seen)[1:-1].removeprefix('Seen: ')}")
        records = [Windowed.of(record, windows.get(record.name)) for record in seen]
        own, shown = given.read(given.own, batch), given.image(batch)
        if image is not None:
            own, shown, grid = _with_image(model, given, own, image, grid, batch)
        return AttentionView(
            records,
            own,
            source_tokens=given.read(given.source, batch),
            image=shown,
            grid=given.grid if grid is None else grid,
            batch=batch,
            **_model_of(model, given),
            theme=theme,
        )


def _model_of(model: Any, given: Inputs) -> dict[str, Any]:
    """The model and its inputs, where the view can ask it from what the scores come."""
    known = isinstance(getattr(model, "_orig_mod", model), TinyTransformer)
    more = dict(given.named)
    tokens = more.pop("tokens", given.arguments[0] if given.arguments else None)
    ids = isinstance(tokens, torch.Tensor) and tokens.ndim < 3 and not tokens.is_floating_point()
    if not known or not ids or len(given.arguments) > 1:
        return {}
    return {"model": model, "inputs": {"tokens": tokens, **more}}


def _with_image(
    model: Any, given: Inputs, own: Any, image: Any, grid: Any, batch: int
) -> tuple[Any, Any, Any]:
    """The tokens, those at markers as patches; the image, or several side by side; the grid of the
    whole."""
    images = list(image) if isinstance(image, list | tuple) else [image]
    ids, marker = given.own, getattr(model, "marker", None)
    if isinstance(marker, int) and ids is not None:
        rows, columns = (1, 1) if grid is None else checked_grid(grid)
        marked = (ids[batch] == marker).tolist()
        own = Found(at_markers(own, marked, (rows, columns), len(images)))
        grid = rows, len(images) * columns
    elif len(images) > 1 and grid is not None:
        rows, columns = checked_grid(grid)
        grid = rows, len(images) * columns
    return own, side_by_side(images), grid
