"""A compressed model as a file that is as small as is claimed of it.

Of a matrix under a mask a bit for each weight and the weights that are left are written, of
integers as many bits as each has, of k-means weights the numbers of the centres and the centres;
all else as it is. Where many integers have the value 0, as after pruning, a bit for each and those
that are not 0 take less. ``load_compressed`` makes the same module of one that was never
compressed, whose heads and hidden units may be more than the file has:

    save_compressed(smaller, "smaller.safetensors")
    again = load_compressed("smaller.safetensors", attnlab.TinyTransformer(**model.config))

What a mask has cut is 0 afterwards, also below the mask.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.compression.kmeans_weights import KMeansOptions, SharedLinear
from attnlab.compression.levels import Levels, as_bits, as_bytes, packed, unpacked
from attnlab.compression.matrices import check_module, mask_on, put_mask
from attnlab.compression.quantized import (
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    put,
    stored_size,
)
from attnlab.compression.units import shrink, units_of
from attnlab.core.files import checked_place
from attnlab.models.storage import load_tensors, read_told, save_tensors

TOLD = "compressed"


def save_compressed(module: nn.Module, path: str | Path) -> None:
    """Writes the file whole, or leaves what was there.

    Raises ValueError for a module on the meta device.
    """
    check_module(module)
    state = dict(module.state_dict())
    if any(tensor.is_meta for tensor in state.values()):
        raise ValueError("the module is on the meta device and holds no numbers to save")
    told: dict[str, Any] = {}
    first: dict[int, str] = {}
    for name, part in module.named_modules():
        before = f"{name}." if name else ""
        if isinstance(part, QuantizedWeight):
            told[name] = _of_integers(part)
            q = state.pop(f"{before}q")
            told[name]["same"] = first.setdefault(id(part.q), name)
            if told[name]["same"] == name:
                levels = part.levels
                state |= _packed(f"{before}q", q, part.zeros, levels.bits, levels.lowest)
            else:
                del state[f"{before}step"], state[f"{before}zero"]
        elif isinstance(part, SharedLinear):
            told[name] = {"kind": "shared", **vars(part.options), "shape": [*part.codes.shape]}
            codes = state.pop(f"{before}codes")
            state |= _packed(f"{before}codes", codes, codes == 0, part.options.bits, 0)
        else:
            names: Any = getattr(part, "parametrizations", ())
            for own in [n for n in names if mask_on(part, n) is not None]:
                inside = f"{before}parametrizations.{own}"
                mask, values = state.pop(f"{inside}.0.mask"), state.pop(f"{inside}.original")
                told.setdefault(name, {"kind": "masked", "shapes": {}})
                told[name]["shapes"][own] = [*mask.shape]
                state |= {f"{before}{own}.{n}": x for n, x in _mask_parts(mask).items()}
                state[f"{before}{own}.left"] = values[mask]
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in _once(state).items()}
    save_tensors(tensors, checked_place(path), {TOLD: json.dumps(told)})


def _packed(name: str, q: Tensor, zeros: Tensor, bits: int, lowest: int) -> dict[str, Tensor]:
    """Integers as bytes; where it takes less, a bit for each and those that are not 0."""
    if stored_size(zeros, bits) == -(-q.numel() * bits // 8):
        return {name: packed(q, bits, lowest)}
    return {
        f"{name}.left": packed(q[~zeros], bits, lowest),
        f"{name}.mask": as_bytes(~zeros.flatten()),
    }


def _unpacked(
    name: str, tensors: dict[str, Tensor], shape: list[int], bits: int, lowest: int, zero: Tensor
) -> Tensor:
    """The integers that ``_packed`` has written, of int8; ``zero`` is the one of 0."""
    if name in tensors:
        return unpacked(tensors.pop(name), _size(shape), bits, lowest).view(shape)
    mask = as_bits(tensors.pop(f"{name}.mask"), _size(shape)).bool().view(shape)
    q = zero.to(torch.int8).expand(shape).clone()
    q[mask] = unpacked(tensors.pop(f"{name}.left"), int(mask.sum()), bits, lowest)
    return q


def _mask_parts(mask: Tensor) -> dict[str, Tensor]:
    """The bits of a mask; where it cuts whole rows and columns, those of the rows and columns."""
    if mask.dim() == 2:
        rows, columns = mask.any(1), mask.any(0)
        if torch.equal(mask, rows[:, None] & columns):
            parts = {"rows": rows, "columns": columns}
            return {name: as_bytes(bits) for name, bits in parts.items() if not bits.all()}
    return {"mask": as_bytes(mask.flatten())}


def _mask_of(tensors: dict[str, Tensor], name: str, shape: list[int]) -> Tensor:
    if f"{name}.mask" in tensors:
        return as_bits(tensors.pop(f"{name}.mask"), _size(shape)).bool().view(shape)
    mask = torch.ones(shape, dtype=torch.bool)
    for axis, part in enumerate(("rows", "columns")):
        if f"{name}.{part}" in tensors:
            bits = as_bits(tensors.pop(f"{name}.{part}"), shape[axis]).bool()
            mask &= bits if axis else bits[:, None]
    return mask


def _once(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor under its first name; a tied one is written once."""
    seen: dict[Any, str] = {}
    for name, x in state.items():
        seen.setdefault((x.data_ptr(), x.shape, x.dtype) if x.numel() else name, name)
    return {name: state[name] for name in seen.values()}


def _of_integers(part: QuantizedWeight) -> dict[str, Any]:
    kind = "linear" if isinstance(part, QuantizedLinear) else "embedding"
    told = {"kind": kind, **vars(part.levels), "shape": [*part.q.shape]}
    return told | {"activations": getattr(part, "activations", "none")}


def load_compressed(path: str | Path, module: nn.Module) -> nn.Module:
    """A copy of ``module``, which was never compressed, with the numbers of the file in its form.

    Raises ValueError for a file that ``save_compressed`` has not written, and for another module.
    """
    check_module(module)
    told, tensors = _read(path), load_tensors(path)
    made = copy.deepcopy(module)
    parts = dict(made.named_modules(remove_duplicate=False))
    unknown = [name for name in told if name not in parts]
    if unknown:
        raise ValueError(f"{path} is of another module: this one has no layer {unknown[0]!r}")
    _shrink(made, {**{n: list(x.shape) for n, x in tensors.items()}, **_shapes(told)})
    new: dict[str, nn.Module] = {}
    for name, own in told.items():
        before = f"{name}." if name else ""
        if own["kind"] == "masked":
            for each, shape in own["shapes"].items():
                mask = _mask_of(tensors, f"{before}{each}", shape)
                values = torch.zeros(shape, dtype=tensors[f"{before}{each}.left"].dtype)
                values[mask] = tensors.pop(f"{before}{each}.left")
                if [*getattr(parts[name], each).shape] != shape:
                    raise ValueError(_other(path, f"{before}{each}"))
                put_mask(parts[name], mask, each)
                tensors[f"{before}parametrizations.{each}.original"] = values
                tensors[f"{before}parametrizations.{each}.0.mask"] = mask
        elif own["kind"] == "shared":
            options = KMeansOptions(bits=own["bits"], rounds=own["rounds"])
            none = torch.zeros((), dtype=torch.int8)
            codes = _unpacked(f"{before}codes", tensors, own["shape"], options.bits, 0, none)
            part: Any = parts[name]
            new[name] = SharedLinear(part.weight, part.bias, options).train(part.training)
            tensors[f"{before}codes"] = codes.view(torch.uint8)
        else:
            new[name] = _integers(own, name, parts[name], tensors)
    made = put(made, new)
    _fill(made, tensors, path)
    for name, own in told.items():
        if own.get("same", name) != name:
            known: Any = dict(made.named_modules())
            known[name].share_with(known[own["same"]])
    return made


def _shapes(told: dict[str, Any]) -> dict[str, list[int]]:
    """The shapes of the matrices that are not written as they are, by the name of the weight."""
    found = {}
    for name, own in told.items():
        shape = own["shapes"].get("weight") if own["kind"] == "masked" else own["shape"]
        if shape is not None:
            found[f"{name}.weight" if name else "weight"] = shape
    return found


def _shrink(module: nn.Module, shapes: Mapping[str, list[int]]) -> None:
    """Takes out as many heads and hidden units as the matrices of the file lack; which of them does
    not matter, as the numbers of all are then those of the file."""
    names = {id(part): name for name, part in module.named_modules()}
    for place in units_of(module):
        first = place.parts[0]
        name = names[id(first.layer)]
        shape = shapes.get(f"{name}.weight" if name else "weight")
        if shape is None or len(shape) != 2 or shape[first.axis] % first.width:
            continue
        left = shape[first.axis] // first.width
        if 0 < left < place.count:
            shrink(place, torch.arange(place.count) < left)


def _integers(
    own: dict[str, Any], name: str, part: Any, tensors: dict[str, Tensor]
) -> QuantizedWeight:
    levels = Levels(bits=own["bits"], scheme=own["scheme"], per=own["per"])
    before = f"{name}." if name else ""
    if own["kind"] == "linear":
        given: Any = tuple(tensors.get(f"{before}{end}") for end in ("low", "high"))
        static = own["activations"] == "static"
        made: Any = QuantizedLinear(
            part.weight, part.bias, levels, own["activations"], given if static else None
        )
    else:
        made = QuantizedEmbedding(part.weight, levels)
    made.train(part.training)
    if own["same"] == name:
        zero = tensors[f"{before}zero"]
        tensors[f"{before}q"] = _unpacked(
            f"{before}q", tensors, own["shape"], levels.bits, levels.lowest, zero
        )
    return made


def _fill(module: nn.Module, tensors: dict[str, Tensor], path: str | Path) -> None:
    state = module.state_dict()
    wrong = [n for n, x in tensors.items() if n not in state or state[n].shape != x.shape]
    if wrong:
        raise ValueError(_other(path, wrong[0]))
    module.load_state_dict(tensors, strict=False)  # second names of tied matrices are missing


def _other(path: str | Path, name: str) -> str:
    return f"{path} is of another module: {name} is missing here or has another shape"


def _read(path: str | Path) -> dict[str, Any]:
    metadata = read_told(path)
    if TOLD not in metadata:
        raise ValueError(f"{path} holds no compressed module: save_compressed did not write it")
    found: dict[str, Any] = json.loads(metadata[TOLD])
    return found


def _size(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())
