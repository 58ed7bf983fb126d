"""From what a person has (a text, tokens, an image) to what a model takes, and what to call its
tokens."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.lens.sources.readers import Reader
from attnlab.lens.sources.tokens import Found
from attnlab.models.generate import generate as generate_tokens
from attnlab.models.tiny import TinyTransformer

NEW = 20
"""Tokens that an encoder-decoder generates where nobody says what its decoder reads."""


@dataclass
class Inputs:
    """The arguments of one call, and how its tokens are read."""

    reader: Reader
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    two_sided: bool = False

    @property
    def own(self) -> Tensor | None:
        """The numbers of the model's tokens, or of its decoder's."""
        if self.two_sided:
            return self._ids("decoder_input_ids", "tokens")
        return self._ids("input_ids", "tokens")

    @property
    def source(self) -> Tensor | None:
        """The tokens that the encoder reads."""
        return self._ids("input_ids", "source") if self.two_sided else None

    @property
    def pixels(self) -> Tensor | None:
        found = self.named.get("pixel_values", self.arguments[0] if self.arguments else None)
        return found if _is_pixels(found) else None

    def _ids(self, *names: str) -> Tensor | None:
        given = [self.named[name] for name in names if name in self.named]
        given += [] if self.two_sided else self.arguments[:1]
        return next((value for value in given if _is_ids(value)), None)

    def read(self, ids: Tensor | None, batch: int) -> Found | None:
        """The tokens of one row, as texts."""
        if ids is None:
            return None
        _check_row(batch, len(ids))
        return Found(self.reader.tokens(ids[batch]))

    def image(self, batch: int) -> Tensor | None:
        """What the model saw: its own pixels, in colours again where the processor says how."""
        if self.pixels is None:
            return None
        _check_row(batch, len(self.pixels))
        return self.reader.colours(self.pixels[batch])

    def __str__(self) -> str:
        parts = [_described(value) for value in self.arguments]
        parts += [f"{name}={_described(value)}" for name, value in self.named.items()]
        return ", ".join(parts) or "nothing"

    def run(self, model: nn.Module) -> None:
        """Call the model; its own errors come with what was given, and what it takes."""
        try:
            model(*self.arguments, **self.named)
        except Exception as error:
            raise ValueError(
                f"{type(model).__name__} could not be run on {self}: {_first_line(error)}. "
                f"{self.advice(model)}"
            ) from error

    def advice(self, model: nn.Module) -> str:
        """What the model takes."""
        names = [
            name
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        if "pixel_values" in names and self.pixels is None:
            both = " and a text" if "input_ids" in names else ""
            return (
                f"It reads an image{both}: give what its processor makes, `inputs=processor("
                f'{"text=…, " if both else ""}images=…, return_tensors="pt")`'
            )
        if not names:
            return "Its forward takes nothing"
        return f"Its forward takes {shown}: give them as a dict, `inputs={{{names[0]!r}: …}}`"


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def inputs_of(
    model: nn.Module, inputs: Any, tokenizer: Any, target: Any, generate: int | None
) -> Inputs:
    """What to call the model with."""
    reader = Reader(tokenizer)
    given = _Given(model, reader)
    found = given.read(inputs)
    found.grid = _patch_grid(model, found)
    if target is not None:
        given.set_target(found, target)
    elif given.has_two_sides and not given.has_target(found):
        given.continue_target(found, NEW if generate is None else generate)
    elif generate is not None:
        given.continue_text(found, generate)
    return found


class _Given:
    def __init__(self, model: nn.Module, reader: Reader) -> None:
        self.model, self.reader = model, reader
        self.config = getattr(model, "config", None)
        self.hugging_face = hasattr(model, "main_input_name") and self.config is not None
        parameter = next(model.parameters(), None)
        self.device = parameter.device if parameter is not None else torch.device("cpu")
        self.dtype = parameter.dtype if parameter is not None else torch.float32
        self.accepted = set(inspect.signature(model.forward).parameters)

    @property
    def has_two_sides(self) -> bool:
        """Whether it has an encoder and a decoder, and is not one of the two by itself."""
        if isinstance(self.model, TinyTransformer):
            return self.model.kind == "encoder_decoder"
        both = bool(getattr(self.config, "is_encoder_decoder", False))
        return both and "decoder_input_ids" in self.accepted

    # what was given

    def read(self, inputs: Any) -> Inputs:
        named: dict[str, Any] = {}
        arguments: tuple[Any, ...] = ()
        if isinstance(inputs, Tensor) or _is_numbers(inputs):
            arguments, named = self._of_tensor(torch.as_tensor(inputs))
        elif isinstance(inputs, str):
            named = self._of_text(inputs)
        elif hasattr(inputs, "sequences"):
            arguments, named = self._of_tensor(self._sequences(inputs))
        elif isinstance(inputs, Mapping):
            named = {name: _tensor(value) for name, value in inputs.items() if value is not None}
        elif isinstance(inputs, tuple):
            arguments = tuple(_tensor(value) for value in inputs)
        elif _is_image(inputs) or isinstance(inputs, np.ndarray):
            named = self._processed(inputs)
        else:
            raise TypeError(
                "`inputs` should be a text, a tensor of tokens, an image, a dict of what the model "
                f"takes or a tuple of its arguments, got {type(inputs).__name__}"
            )
        named = {name: self._moved(value) for name, value in named.items()}
        arguments = tuple(self._moved(value) for value in arguments)
        return Inputs(self.reader, arguments, named, two_sided=self.has_two_sides)

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(self.device, self.dtype if value.is_floating_point() else None)

    def _of_text(self, text: str) -> dict[str, Any]:
        if not text:
            raise ValueError("`inputs` is an empty text: give it at least one character")
        if self.reader.tokenizer is None:
            raise ValueError(
                "a text needs the model's own `tokenizer`: attnlab.view(model, text, tokenizer), "
                "for example transformers.AutoTokenizer.from_pretrained(…); or give `inputs` as a "
                "tensor of tokens"
            )
        found = self.reader.encoded(text)
        if set(found) == {"input_ids"} and not self.hugging_face:
            return self._of_tensor(found["input_ids"])[1] or {"tokens": found["input_ids"]}
        known = {name: value for name, value in found.items() if name in self.accepted}
        return known or found

    def _of_tensor(self, tensor: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if tensor.numel() == 0:
            raise ValueError(f"`inputs` is empty: its shape is {tuple(tensor.shape)}")
        if not (tensor.is_floating_point() or tensor.dtype == torch.bool) and tensor.dim() == 1:
            tensor = tensor[None]
        if isinstance(self.model, TinyTransformer):
            vectors = tensor.is_floating_point() and self.model.features is None
            if self.has_two_sides:
                return (), {"source_embeds" if vectors else "source": tensor}
            return (), {"inputs_embeds" if vectors else "tokens": tensor}
        if not self.hugging_face:
            return (tensor,), {}
        if not tensor.is_floating_point():
            return (), {"input_ids": tensor}
        name = str(self.model.main_input_name)
        if tensor.dim() == 4 and "pixel_values" in self.accepted:
            name = "pixel_values"
        elif name == "input_ids":
            name = "inputs_embeds"
        if name == "pixel_values" and tensor.dim() == 3:
            tensor = tensor[None]
        return (), {name: tensor}

    def _processed(self, inputs: Any) -> dict[str, Any]:
        """An image or a sound by the processor."""
        found = self.reader.processed(inputs, sound=not _is_image(inputs) and inputs.ndim == 1)
        return {name: value for name, value in found.items() if name in self.accepted} or found

    def _sequences(self, outputs: Any) -> Tensor:
        sequences = outputs.sequences
        if self.has_two_sides:
            raise ValueError(
                "these outputs of `generate` are what the decoder wrote: give what the encoder "
                "read as `inputs` and the outputs as `target`"
            )
        assert isinstance(sequences, Tensor)
        return sequences

    # the decoder's side

    def has_target(self, found: Inputs) -> bool:
        names: tuple[str, ...] = ("decoder_input_ids", "decoder_inputs_embeds", "labels")
        if isinstance(self.model, TinyTransformer):
            names = ("tokens", "inputs_embeds")
        return any(name in found.named for name in names)

    def set_target(self, found: Inputs, target: Any) -> None:
        if not self.has_two_sides:
            raise ValueError(
                "`target` is what the decoder of an encoder-decoder reads, and this model has one "
                "side only: leave it out"
            )
        ids = self._target_tokens(target)
        name = "tokens" if isinstance(self.model, TinyTransformer) else "decoder_input_ids"
        found.named[name] = ids.to(self.device)

    def _target_tokens(self, target: Any) -> Tensor:
        if hasattr(target, "sequences"):
            return torch.as_tensor(target.sequences)
        if isinstance(target, Tensor) or _is_numbers(target):
            ids = torch.as_tensor(target)
            return ids[None] if ids.dim() == 1 else ids
        if not isinstance(target, str):
            raise TypeError(
                "`target` should be a text, a tensor of tokens or the outputs of `generate`, got "
                f"{type(target).__name__}"
            )
        if self.reader.tokenizer is None:
            raise ValueError("a text as `target` needs the model's own `tokenizer`")
        ids = torch.as_tensor(self.reader.encoded(target, target=True)["input_ids"])
        start = getattr(self.config, "decoder_start_token_id", None)
        end = getattr(self.config, "eos_token_id", None)
        if ids.shape[1] > 1 and int(ids[0, -1]) in ([end] if isinstance(end, int) else end or []):
            ids = ids[:, :-1]  # what is read are the tokens before the last that is predicted
        if start is not None and int(ids[0, 0]) != start:
            ids = torch.cat([ids.new_full((len(ids), 1), start), ids], dim=1)
        return ids

    def continue_target(self, found: Inputs, steps: int) -> None:
        """What the decoder reads is what the model writes."""
        able = getattr(self.model, "can_generate", lambda: False)
        if isinstance(self.model, TinyTransformer) or not able():
            raise ValueError(
                "this model has an encoder and a decoder: say what the decoder reads, as "
                "`target=` (a text or tokens)"
            )
        found.named["decoder_input_ids"] = self._generated(found, steps)

    def continue_text(self, found: Inputs, steps: int) -> None:
        if self.has_two_sides:
            raise ValueError("`generate` writes what the decoder reads: leave its tokens out")
        if isinstance(self.model, TinyTransformer):
            if "tokens" not in found.named:
                raise ValueError(
                    "`generate` goes on writing tokens, and `inputs` holds vectors in their place: "
                    "leave `generate` out"
                )
            tokens = found.named["tokens"]
            found.named["tokens"] = generate_tokens(self.model, tokens, steps, temperature=0)
            return
        able = getattr(self.model, "can_generate", lambda: False)
        if not able():
            raise ValueError(
                f"{type(self.model).__name__} cannot generate text: leave `generate` out, or load "
                "the model with its language-model head"
            )
        found.named["input_ids"] = self._generated(found, steps)
        for name in ("attention_mask", "token_type_ids", "position_ids"):
            found.named.pop(name, None)

    def _generated(self, found: Inputs, steps: int) -> Tensor:
        model: Any = self.model
        options = {"max_new_tokens": steps, "do_sample": False, "num_beams": 1}
        try:
            written = model.generate(**found.named, **options)
        except Exception as error:
            raise ValueError(
                f"{type(model).__name__}.generate could not be run on {found}: "
                f"{str(error).strip().splitlines()[0] if str(error) else error!r}; "
                "give the tokens yourself, as `target=` or in `inputs`"
            ) from error
        return torch.as_tensor(getattr(written, "sequences", written))


def _patch_grid(model: nn.Module, found: Inputs) -> tuple[int, int] | None:
    """Rows and columns of the patches, as the model or its configuration tells them."""
    if found.pixels is None:
        return None
    high, wide = found.pixels.shape[-2:]
    config = getattr(model, "config", None)
    parts = [getattr(config, name, None) for name in ("vision_config", "encoder")]
    for owner in (*parts, config, model):
        size = getattr(owner, "patch_size", None)
        if isinstance(size, int):
            size = (size, size)
        if isinstance(size, tuple | list) and len(size) == 2:
            return high // int(size[0]), wide // int(size[1])
    return None


def _check_row(batch: int, rows: int) -> None:
    if batch >= rows:
        raise ValueError(
            f"`batch` should be from 0 to {rows - 1}, the rows of `inputs`, got {batch}"
        )


def _is_numbers(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and value.ndim < 3
    return isinstance(value, list) and bool(value) and all(isinstance(x, int) for x in value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point()


def _is_pixels(value: Any) -> bool:
    channels = isinstance(value, Tensor) and value.dim() == 4 and value.is_floating_point()
    return channels and value.shape[1] in (1, 3)


def _is_image(value: Any) -> bool:
    if hasattr(value, "convert") and hasattr(value, "mode"):  # PIL
        return True
    return isinstance(value, np.ndarray) and value.ndim in (2, 3)


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray) or (isinstance(value, list) and value):
        try:
            value = torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError):
            return value
        return value[None] if value.dim() == 1 else value
    return value


def _described(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
