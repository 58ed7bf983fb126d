"""A pretend second device: it shows, without a GPU, whether code would run on one.

Its tensors say that they live on ``pretend:0``. They compute on the CPU but refuse, as a GPU's
would, to meet a CPU tensor that has dimensions, and to be handed to a kernel of the CPU. The device
stands on PyTorch's private-use backend, which cannot be unregistered: call ``register`` in a
process of its own only.
"""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NAME = "pretend"
COPIES = ("aten::_to_copy", "aten::copy_")
FROM_DATA = (torch.tensor, torch.as_tensor)
BY_INDEX = (Tensor.__getitem__, Tensor.__setitem__)
RECURRENT = (torch.gru, torch.lstm)  # whose kernels differ from device to device
READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2")
"""Operations whose result the CPU needs before it can go on."""
SEVERAL = (list, tuple)
NewGenerator = torch.Generator


@functools.cache
def the_device() -> torch.device:
    """The pretend device, made once: an operation asks for it often."""
    return torch.device(NAME, 0)


class Elsewhere(Tensor):
    """A tensor of the pretend device: a shell around the CPU tensor that holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Elsewhere":
        if inner.is_conj() or inner.is_neg():  # a shell has no such marks
            inner = inner.resolve_conj().resolve_neg()
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=the_device(),
        )  # fmt: skip
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()


class Generator(NewGenerator):
    """Random numbers for the device that it was made for."""

    there: bool

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        made = super().__new__(cls)
        made.there = on_pretend(device)
        return made

    @property
    def device(self) -> torch.device:
        return the_device() if self.there else torch.device("cpu")

    def __init__(self, device: Any = "cpu") -> None:
        pass


class Operations(TorchDispatchMode):
    """Sees every operation: also those which make a tensor on the device out of nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and each operation would ask whether it is

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """What PyTorch does for a device before it is an operation: tensors from data, generators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        there = on_pretend(kwargs.get("device")) or isinstance((*args, None)[0], Elsewhere)
        generator = kwargs.get("generator")
        if generator is not None and getattr(generator, "there", False) != there:
            raise RuntimeError(f"{func.__name__} draws with the generator of another device")
        if there and func in FROM_DATA:
            return func(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if func is Tensor.__deepcopy__ and isinstance(args[0], Elsewhere):
            return copied(*args)
        if there and func in RECURRENT:
            before = len(WAITED)  # a GPU has a kernel of its own
            here = tree_map(lambda x: x.to("cpu") if isinstance(x, Elsewhere) else x, args)
            del WAITED[before:]
            return tree_map(lambda x: x.to(NAME), func(*here, **kwargs))
        if there and func in BY_INDEX:
            args = (args[0], listed_there(args[1]), *args[2:])
        return func(*args, **kwargs)


def copied(x: Elsewhere, memo: dict[int, Any]) -> Tensor:
    """What ``copy.deepcopy`` gives: another shell around another CPU tensor."""
    with torch.no_grad():
        made: Tensor = Elsewhere(x.inner.clone())
    if isinstance(x, nn.Parameter):
        made = nn.Parameter(made, requires_grad=x.requires_grad)
    memo[id(x)] = made
    return made


def on_pretend(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def listed_there(index: Any) -> Any:
    """Lists in an index as tensors of the device."""
    if isinstance(index, tuple):
        return tuple(map(listed_there, index))
    return Elsewhere(torch.tensor(index)) if isinstance(index, list) else index


class Backend:
    """What PyTorch asks of ``torch.pretend``."""

    is_initialized = is_available = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    device = staticmethod(lambda index: nullcontext())
    manual_seed_all = staticmethod(lambda seed: None)
    get_rng_state = staticmethod(lambda device=None: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=None: torch.set_rng_state(state))
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


WAITED: list[str] = []
"""The operations since it was cleared for which a CPU would have to wait for the device."""


class Traits(NamedTuple):
    """What is to be known of an operation."""

    name: str
    copies: bool
    reads: bool
    for_cpu: bool
    written: list[tuple[int, str]]
    """The arguments that it changes in place, and returns."""


@functools.cache
def traits(func: Any) -> Traits:
    arguments = enumerate(func._schema.arguments)
    written = [(i, a.name) for i, a in arguments if a.alias_info and a.alias_info.is_write]
    name = func.name()
    return Traits(
        name, name.startswith(COPIES), name.startswith(READS), "_for_cpu" in name, written
    )


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """``func`` on the CPU; its result lives where its tensors do, or where ``device=`` says."""
    about = traits(func)
    given = tensors((*args, *kwargs.values()))
    there = any(isinstance(x, Elsewhere) for x in given)
    if there:
        refuse(about, given)
    device = kwargs.get("device")
    if there and (about.reads or not (device is None or on_pretend(device))):
        WAITED.append(about.name)
    if device is not None:
        there = on_pretend(device)
        kwargs = {**kwargs, "device": "cpu"} if there else kwargs
    out = func(*map(inside, args), **{name: inside(value) for name, value in kwargs.items()})
    if about.written:
        changed = [kwargs[name] if name in kwargs else args[i] for i, name in about.written]
        return changed[0] if len(changed) == 1 else tuple(changed)
    return outside(out) if there else out


def tensors(values: Iterable[Any]) -> list[Tensor]:
    """Of the arguments of an operation, which may be lists of tensors."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, SEVERAL):
            found += tensors(value)
    return found


def inside(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.inner
    return type(value)(map(inside, value)) if isinstance(value, SEVERAL) else value


def outside(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Elsewhere(value)
    return type(value)(map(outside, value)) if isinstance(value, SEVERAL) else value


def refuse(about: Traits, given: list[Tensor]) -> None:
    if not about.copies:
        for x in given:
            if not isinstance(x, Elsewhere) and x.dim():
                raise RuntimeError(f"{about.name} meets a CPU tensor of shape {tuple(x.shape)}")
    if about.for_cpu:
        raise RuntimeError(f"{about.name} is a kernel of the CPU")


def register() -> None:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=Backend)
    torch.autograd.set_multithreading_enabled(False)  # threads of a device do not know our modes
    torch.Generator = Generator


@contextmanager
def pretending() -> Iterator[torch.device]:
    """Inside, the device can be used."""
    with Operations(), Functions():
        yield the_device()
