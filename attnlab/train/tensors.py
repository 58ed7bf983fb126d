"""The tensors of a model and of its optimizer by name, and whether two sets of them agree."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.train.errors import CheckpointError

_LISTED = 3


def bare(model: nn.Module) -> nn.Module:
    """The module inside a `torch.compile` wrapper: its names are the same compiled or not."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def _is_whole(tensor: Tensor) -> bool:
    """Whether it is not one that this process keeps a share of."""
    return not callable(getattr(tensor, "full_tensor", None))


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself; of one in shares all of it, for which every process calls this."""
    full: Tensor = tensor if _is_whole(tensor) else tensor.full_tensor()  # type: ignore[attr-defined]
    return full


def own_share(tensor: Tensor, like: Tensor) -> Tensor:
    """What this process keeps of a tensor like ``like``: a share of it, or all of it."""
    if _is_whole(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(like.device), mesh, placements, src_data_rank=None)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; of several names for one and the same tensor, the first only.

    safetensors refuses tensors that share memory; a tied weight is therefore stored once, and fills
    both places again when it is copied into the one tensor that they share.
    """
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[object, ...]] = set()
    for name, tensor in bare(model).state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"The model keeps '{name}', a {type(tensor).__name__}, in its state, and a "
                "checkpoint holds tensors only; register it as a buffer instead of get_extra_state"
            )
        _check_storable(name, tensor)
        place: tuple[object, ...] = (tensor.device, tensor.data_ptr(), tensor.shape)
        place = (*place, tensor.stride(), tensor.dtype) if _is_whole(tensor) else (id(tensor),)
        if place not in seen:
            tensors[name] = tensor.detach()
        seen.add(place)
    return tensors


def optimizer_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    objective: nn.Module | None = None,
) -> dict[str, Tensor]:
    """The optimizer's state as `parameter/slot`; a slot that is None is left out."""
    if optimizer is None:
        return {}
    names = parameter_names(model, objective)
    tensors: dict[str, Tensor] = {}
    for parameter, slots in optimizer.state.items():
        name = _name_of(parameter, names)
        for slot, value in slots.items():
            if isinstance(value, Tensor):
                _check_storable(f"{name}/{slot}", value)
                tensors[f"{name}/{slot}"] = value
            elif value is not None:
                raise CheckpointError(
                    f"The optimizer keeps '{slot}' of '{name}', a {type(value).__name__}, in its "
                    "state, and a checkpoint holds tensors only; save without the optimizer"
                )
    return tensors


def optimizer_state(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    where: str,
    objective: nn.Module | None = None,
) -> dict[str, Any]:
    """The `state_dict` that gives `optimizer` these tensors, each of its parameter's kind."""
    names = parameter_names(model, objective)
    parameters = {
        _name_of(p, names): p for group in optimizer.param_groups for p in group["params"]
    }
    order = {name: index for index, name in enumerate(parameters)}
    wanted: dict[str, str] = {}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition("/")
        if name in parameters:
            counts = slot == "step" and tensor.ndim == 0 and tensor.is_floating_point()
            wanted[key] = described(tensor if counts else parameters[name])
            share = tensor.clone() if counts else own_share(tensor.clone(), parameters[name])
            state.setdefault(order[name], {})[slot] = share
    check_agreement("optimizer", wanted, descriptions(tensors), where)
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}


def parameter_names(model: nn.Module, objective: nn.Module | None = None) -> dict[Tensor, str]:
    """The names of what is trained: the model's own, and ``objective.…`` for its objective's."""
    names: dict[Tensor, str] = {p: name for name, p in bare(model).named_parameters()}
    beside = [] if objective is None else objective.named_parameters()
    return names | {p: f"objective.{name}" for name, p in beside if p not in names}


def _name_of(parameter: Tensor, names: Mapping[Tensor, str]) -> str:
    if parameter not in names:
        raise CheckpointError(
            f"The optimizer moves a tensor {described(parameter)} that is no parameter of this "
            "model; give the model and the optimizer that was made for it"
        )
    return names[parameter]


def _check_storable(name: str, tensor: Tensor) -> None:
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        kind = "on the meta device" if tensor.is_meta else f"{tensor.layout}".split(".")[-1]
        raise CheckpointError(
            f"'{name}' is {'quantized' if tensor.is_quantized else kind}; a checkpoint holds plain "
            "dense tensors only"
        )


def described(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def descriptions(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: described(tensor) for name, tensor in tensors.items()}


def check_agreement(what: str, wanted: dict[str, str], found: dict[str, str], where: str) -> None:
    """Raises a sentence about `where` unless the checkpoint's tensors are the wanted ones."""
    complaints = [f"it lacks '{n}' {s}" for n, s in wanted.items() if n not in found]
    complaints += [f"it holds an unknown '{n}' {s}" for n, s in found.items() if n not in wanted]
    complaints += [
        f"'{n}' is {found[n]} there and {s} here"
        for n, s in wanted.items()
        if n in found and found[n] != s
    ]
    if complaints:
        raise CheckpointError(
            f"{where} does not fit this {what}: {listed(complaints)}; build the model with the "
            "options it was trained with, or give another folder (checkpoint and model are as "
            "they were)"
        )


def listed(complaints: list[str]) -> str:
    more = f", and {len(complaints) - _LISTED} more" if len(complaints) > _LISTED else ""
    return "; ".join(complaints[:_LISTED]) + more
