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
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.compression.kmeans_weights import KMeansOptions, SharedLinear
from attnlab.compression.levels import Levels, as_bits, as_bytes, packed, unpacked
from attnlab.compression.matrices import check_module, mask_on, put_mask
from attnlab.compression.quantized import (
    Activations,
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    put,
    stored_size,
)
from attnlab.compression.units import shrink, units_of
from attnlab.core.files import checked_place
from attnlab.core.options import check_value
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


class _Tensors(dict[str, Tensor]):
    """The tensors of a file, which are taken out one by one."""

    def __init__(self, tensors: Mapping[str, Tensor], path: str | Path) -> None:
        super().__init__(tensors)
        self.path = path

    def known(self, name: str) -> Tensor:
        if name not in self:
            raise ValueError(f"{self.path} lacks {name}: load another copy of it")
        return self[name]

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self.known(name)
        if found.shape != shape:
            raise ValueError(f"{self.path} holds {name} as {tuple(found.shape)}, not {shape}")
        return self.pop(name)

    def take_bits(self, name: str, count: int) -> Tensor:
        """What takes ``count`` bits, as the bytes that hold them."""
        bytes_of = self.take(name, (-(-count // 8),))
        if bytes_of.dtype != torch.uint8:
            raise ValueError(f"{self.path} holds {name} as {bytes_of.dtype}, not as bytes")
        return bytes_of

    def take_mask(self, name: str, shape: list[int]) -> Tensor:
        size = _size(shape)
        return as_bits(self.take_bits(name, size), size).bool().view(shape)


def _unpacked(
    name: str, tensors: _Tensors, shape: list[int], bits: int, lowest: int, zero: Tensor
) -> Tensor:
    """The integers that ``_packed`` has written, of int8; ``zero`` is the one of 0."""
    size = _size(shape)
    if f"{name}.mask" not in tensors:
        return unpacked(tensors.take_bits(name, size * bits), size, bits, lowest).view(shape)
    mask = tensors.take_mask(f"{name}.mask", shape)
    q = zero.to(torch.int8).expand(shape).clone()
    left = int(mask.sum())
    q[mask] = unpacked(tensors.take_bits(f"{name}.left", left * bits), left, bits, lowest)
    return q


def _mask_parts(mask: Tensor) -> dict[str, Tensor]:
    """The bits of a mask; where it cuts whole rows and columns, those of the rows and columns."""
    if mask.dim() == 2:
        rows, columns = mask.any(1), mask.any(0)
        if torch.equal(mask, rows[:, None] & columns):
            parts = {"rows": rows, "columns": columns}
            return {name: as_bytes(bits) for name, bits in parts.items() if not bits.all()}
    return {"mask": as_bytes(mask.flatten())}


def _mask_of(tensors: _Tensors, name: str, shape: list[int]) -> Tensor:
    if f"{name}.mask" in tensors:
        return tensors.take_mask(f"{name}.mask", shape)
    mask = torch.ones(shape, dtype=torch.bool)
    for axis, part in enumerate(("rows", "columns")):
        if f"{name}.{part}" in tensors:
            bits = tensors.take_mask(f"{name}.{part}", shape[axis : axis + 1])
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
    if any(x.is_meta for x in module.state_dict().values()):
        raise ValueError("the module is on the meta device and has no numbers that could be filled")
    tensors, told = _Tensors(load_tensors(path), path), _read(path)
    made = copy.deepcopy(module)
    parts = dict(made.named_modules(remove_duplicate=False))
    unknown = [name for name in told if name not in parts]
    if unknown:
        raise ValueError(f"{path} is of another module: this one has no layer {unknown[0]!r}")
    _shrink(made, {**{n: list(x.shape) for n, x in tensors.items()}, **_shapes(told)})
    _check_parts(parts, told, path)
    new: dict[str, nn.Module] = {}
    for name, own in told.items():
        before = f"{name}." if name else ""
        if own["kind"] == "masked":
            for each, shape in own["shapes"].items():
                mask = _mask_of(tensors, f"{before}{each}", shape)
                left = tensors.take(f"{before}{each}.left", (int(mask.sum()),))
                values = torch.zeros(shape, dtype=left.dtype)
                values[mask] = left
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
    again = {name: own["same"] for name, own in told.items() if own.get("same", name) != name}
    _fill(made, tensors, again, path)
    for name, same in again.items():
        known: Any = dict(made.named_modules())
        known[name].share_with(known[same])
    return made


def _shapes(told: dict[str, Any]) -> dict[str, list[int]]:
    """The shapes of the matrices that are not written as they are, by the name of the weight."""
    found = {}
    for name, own in told.items():
        shape = own["shapes"].get("weight") if own["kind"] == "masked" else own["shape"]
        if shape is not None:
            found[f"{name}.weight" if name else "weight"] = shape
    return found


def _check_parts(parts: Mapping[str, nn.Module], told: dict[str, Any], path: str | Path) -> None:
    """A ValueError for a layer of another kind or shape than the one that was compressed."""
    kinds = {"linear": nn.Linear, "shared": nn.Linear, "embedding": nn.Embedding}
    for name, own in told.items():
        shapes = own["shapes"] if own["kind"] == "masked" else {"weight": own["shape"]}
        for each, shape in shapes.items():
            weight = getattr(parts[name], each, None)
            of_kind = isinstance(parts[name], kinds.get(own["kind"], nn.Module))
            if not of_kind or not isinstance(weight, Tensor) or [*weight.shape] != shape:
                raise ValueError(_other(path, f"{name}.{each}" if name else each))


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


def _integers(own: dict[str, Any], name: str, part: Any, tensors: _Tensors) -> QuantizedWeight:
    levels = Levels(bits=own["bits"], scheme=own["scheme"], per=own["per"])
    before = f"{name}." if name else ""
    if own["kind"] == "linear":
        static = own["activations"] == "static"
        ends: Any = [tensors.known(f"{before}{end}") for end in ("low", "high")] if static else None
        made: Any = QuantizedLinear(part.weight, part.bias, levels, own["activations"], ends)
    else:
        made = QuantizedEmbedding(part.weight, levels)
    made.train(part.training)
    if own["same"] == name:
        zero = tensors.known(f"{before}zero")
        tensors[f"{before}q"] = _unpacked(
            f"{before}q", tensors, own["shape"], levels.bits, levels.lowest, zero
        )
    return made


def _fill(
    module: nn.Module, tensors: dict[str, Tensor], again: Mapping[str, str], path: str | Path
) -> None:
    """Gives the module all numbers of the file, if it has those of all its tensors. Those of tied
    ones are written once, as are those of quantized weights that are the same ``again``."""
    state = module.state_dict(keep_vars=True)
    wrong = [n for n, x in tensors.items() if n not in state or state[n].shape != x.shape]
    filled = {id(state[name]) for name in tensors if name in state}
    filled |= {id(state.get(f"{name}.{n}")) for name in again for n in ("q", "step", "zero")}
    wrong += [n for n, x in state.items() if id(x) not in filled and x.numel()]
    if wrong:
        raise ValueError(_other(path, wrong[0]))
    module.load_state_dict(tensors, strict=False)


def _other(path: str | Path, name: str) -> str:
    return f"{path} is of another module: {name} is missing in one of them or has another shape"


def _read(path: str | Path) -> dict[str, Any]:
    metadata = read_told(path)
    if TOLD not in metadata:
        raise ValueError(f"{path} holds no compressed module: save_compressed did not write it")
    try:
        return _checked(json.loads(metadata[TOLD]))
    except KeyError as error:
        reason = f"{error} is missing"
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error)
    raise ValueError(f"{path} tells of a compression that attnlab does not know: {reason}")


def _checked(told: Any) -> dict[str, Any]:
    """What ``save_compressed`` tells, if it is that."""
    if not isinstance(told, dict):
        raise TypeError(f"an object of JSON is expected, got {reprlib.repr(told)}")
    for own in told.values():
        kind = check_value("kind", own["kind"], Literal["masked", "shared", "linear", "embedding"])
        if kind == "shared":
            KMeansOptions(bits=own["bits"], rounds=own["rounds"])
        elif kind != "masked":
            Levels(bits=own["bits"], scheme=own["scheme"], per=own["per"])
            check_value("activations", own["activations"], Activations)
            if told[own["same"]].get("same") != own["same"]:
                raise ValueError(f"{own['same']!r} is the same as another one")
        for shape in own["shapes"].values() if kind == "masked" else [own["shape"]]:
            if not all(isinstance(size, int) and 0 <= size < 2**31 for size in shape):
                raise ValueError(f"a shape is of sizes, got {reprlib.repr(shape)}")
    return told


def _size(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())
