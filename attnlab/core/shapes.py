"""Shape contracts that speak.

A signature such as ``q: Float[Tensor, "b h n d"]`` is documentation that a reader trusts only if it
is enforced. ``checked`` enforces it on every call: the letters of all arguments must agree, dtypes
must be of the stated kind, all tensors must live on one device, and all floating-point ones must
have one dtype (autocast, which converts them, excepted, and a ``bias`` in float32 beside queries in
a half precision, whose scores are float32). What is wrong is said in the caller's words: which
argument, what was expected, what came, in which letters.

The vocabulary is jaxtyping's: ``b h n d`` letters, ``3`` a fixed size, ``#b`` a size that may be 1
to broadcast, ``...`` any leading sizes. Arguments that are no tensors (sizes, flags, names) are
checked against their annotations as options are (``attnlab.core.options``).

While ``torch.compile`` traces, the check steps aside, so ``fullgraph=True`` works.

The letters mean the same in all shapes:

    b    sequences in a batch          dim  width of the model
    n    queries, or tokens            d    width of a head: its queries and keys
    m    keys, where they are others   e    width of its values
    t    new tokens, when decoding     p    rows, or width, of a table of positions
    h    heads                         c    rows of a table of clipped distances
    g    heads of keys and values,     r    distances between positions; on pages
         each shared by h / g heads         of low rank the rank, or features
    n_E  edges of a graph, in costs

A page that needs other letters says in its docstring what they are. Weights that belong together
are fields of a ``NamedTuple``, whose annotations are contracts as those of arguments are.
"""

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, Union

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.options import check_value, parameters_of

# What forms and layers take and give, in the letters above.

Queries = Float[Tensor, "b h n d"]  # n queries of width d in each head
Keys = Float[Tensor, "b h m d"]  # one for each of the m positions that are looked at
Values = Float[Tensor, "b h m e"]  # one beside each key, of width e
Outputs = Float[Tensor, "b h n e"]  # what each query takes from the values
SelfKeys = Float[Tensor, "b h n d"]  # keys of the queries' own n positions (no cross-attention)
SelfValues = Float[Tensor, "b h n e"]  # and their values
GroupKeys = Float[Tensor, "b g m d"]  # keys that h / g query heads share
GroupValues = Float[Tensor, "b g m e"]  # and their values

Tokens = Float[Tensor, "b n dim"]  # a batch of sequences, before heads are split or after
NewTokens = Float[Tensor, "b t dim"]  # the next t tokens, when decoding
Context = Float[Tensor, "b m dim"] | None  # what cross-attention looks at; None: x itself
TokenPadding = Bool[Tensor, "b n"] | None  # True = a real token, False = padding; None: all real
KeyPadding = Bool[Tensor, "b m"] | None  # the same for the m positions that are looked at

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAY_BE_EMPTY = {"b"}
"""Letters that may be 0: an empty batch is harmless, an empty sequence is a mistake."""

REMEMBERED = 1024
"""How many kinds of right calls a function remembers, so that they cost next to nothing again."""


class ShapeError(ValueError):
    """An argument whose shape, dtype or device is not what the signature says."""


@dataclass(frozen=True)
class Contract:
    """One jaxtyping annotation, read once: the kind of number and the letters."""

    kind: str
    dtypes: tuple[str, ...] | None
    letters: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}[{' '.join(self.letters)}]"

    @property
    def leading(self) -> bool:
        return bool(self.letters) and self.letters[0] == "..."

    @property
    def axes(self) -> tuple[str, ...]:
        return self.letters[1:] if self.leading else self.letters


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Enforce the annotations of ``function``'s arguments on every call."""
    signature = inspect.signature(function)
    annotations = parameters_of(function)
    parts = dict(_parts(annotations))
    contracts = {name: found for name, a in parts.items() if (found := _contracts(a))}
    others = {name: _other_types(parts[name]) for name in contracts}
    plain = {
        name: a for name, a in annotations.items() if name not in contracts and _is_checkable(a)
    }
    plain_name = function.__qualname__.removesuffix(".__init__")
    of_module = function.__name__ != "__init__" and next(iter(signature.parameters), "") == "self"
    passed: set[Any] = set()  # what was found right need not be looked at again

    def look(args: tuple[Any, ...], kwargs: dict[str, Any], kinds: Any) -> None:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return  # the call itself will fail, in Python's own words, which name the function
        for argument in [name for name in arguments if _is_tuple(annotations.get(name))]:
            value = check_value(argument, arguments[argument], annotations[argument])
            fields = zip(value._fields, value, strict=True)
            arguments |= {f"{argument}.{field}": part for field, part in fields}
        # The class that the caller built, and not the one it has its method from.
        name = f"{type(args[0]).__name__}.{function.__name__}" if of_module else plain_name
        _refuse_strangers(name, contracts, others, arguments)
        for argument, annotation in plain.items():
            if argument in arguments:
                check_value(argument, arguments[argument], annotation)
        if check(name, contracts, arguments):
            if len(passed) >= REMEMBERED:
                passed.clear()
            passed.add(kinds)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            kinds = (*map(_kind, args), *kwargs, *map(_kind, kwargs.values()))
            if kinds not in passed:
                look(args, kwargs, kinds)
        return function(*args, **kwargs)

    return call


def _kind(value: Any) -> Any:
    """All that a check looks at: of a tensor shape, dtype and device; of a number its value."""
    if isinstance(value, Tensor) and (value.is_nested or value.layout != torch.strided):
        return object()  # to be looked at every time
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.device
    if isinstance(value, tuple):
        return (type(value), *map(_kind, value))
    return (type(value), value) if isinstance(value, int | float | str) else type(value)


def _is_checkable(annotation: Any) -> bool:
    """Whether it is an annotation of numbers, names or one class.

    Of a type variable nothing is known; lists of several kinds (texts, or lists of texts) are
    checked by the function that takes them.
    """
    kinds = [typing.get_origin(part) for part in typing.get_args(annotation)]
    several = kinds.count(collections.abc.Sequence) > 1
    return annotation is not Any and not isinstance(annotation, TypeVar) and not several


def check(
    function: str, contracts: dict[str, tuple[Contract, ...]], arguments: dict[str, Any]
) -> bool:
    """A ``ShapeError`` where ``arguments`` do not fit; False if they do under autocast only."""
    sizes: dict[str, int] = {}
    setters: dict[str, str] = {}
    first: tuple[str, torch.device] | None = None
    exact: tuple[str, torch.dtype] | None = None
    always = True
    for name, alternatives in contracts.items():
        value = arguments.get(name)
        if not isinstance(value, Tensor):
            continue
        _refuse_not_dense(function, name, value)
        first = first or (name, value.device)
        if value.device != first[1]:
            raise ShapeError(
                f"{function}: `{name}` is on {value.device} but `{first[0]}` is on {first[1]}; "
                f"move them to one device, for example {name}.to({first[0]}.device)"
            )
        if meant := _meant(name, value, contracts, arguments, sizes):
            raise ShapeError(
                f"{function}: `{name}` is {_dtype(value)} of shape {tuple(value.shape)}, which is "
                f"what `{meant}` takes; give it by keyword: {meant}=…"
            )
        _bind(function, name, value, alternatives, sizes, setters)
        if value.is_floating_point() or value.is_complex():
            exact = exact or (name, value.dtype)
            fits = value.dtype.to_real() == exact[1].to_real() or _is_wide_bias(name, value, exact)
            always = always and fits
            if not fits and not autocasts(value.device):
                raise ShapeError(
                    f"{function}: `{name}` is {_dtype(value)} but `{exact[0]}` is "
                    f"{str(exact[1]).removeprefix('torch.')}; give them one dtype, for example "
                    f"{name}.to({exact[0]}.dtype)"
                )
    return always


def _is_wide_bias(name: str, value: Tensor, exact: tuple[str, torch.dtype]) -> bool:
    """Whether it is a bias or an indexer's scores in float32 for queries in a half precision, whose
    own scores are float32."""
    return name in ("bias", "index") and value.dtype == torch.float32 and exact[1].itemsize == 2


def _meant(
    name: str,
    value: Tensor,
    contracts: dict[str, tuple[Contract, ...]],
    arguments: dict[str, Any],
    sizes: dict[str, int],
) -> str | None:
    """An argument left out that fits a value of the wrong kind for ``name``, as where a context is
    given at the place of a padding."""
    if any(c.dtypes is None or _dtype(value) in c.dtypes for c in contracts[name]):
        return None
    for other, alternatives in contracts.items():
        fits = (_fit(contract, value, sizes, {})[0] is None for contract in alternatives)
        if other not in arguments and any(fits):
            return other
    return None


def _refuse_not_dense(function: str, name: str, value: Tensor) -> None:
    if is_stored(value.dtype):
        raise ShapeError(
            f"{function}: `{name}` is {_dtype(value)}, which stores numbers and does not compute "
            f"with them; give {name}.to(torch.bfloat16) instead"
        )
    if value.is_nested:
        kind, advice = "nested", f"{name}.to_padded_tensor(0), with a padding,"
    elif value.layout != torch.strided:
        kind, advice = "sparse", f"{name}.to_dense()"
    else:
        return
    raise ShapeError(f"{function}: `{name}` is a {kind} tensor; give {advice} instead")


def is_stored(dtype: torch.dtype) -> bool:
    """Whether it is a float8, in which PyTorch stores numbers but hardly computes."""
    return dtype.is_floating_point and dtype.itemsize < 2


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for ``device``: operators then agree on a dtype by themselves."""
    kind = device.type
    there = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return there and torch.is_autocast_enabled(kind)


def _refuse_strangers(
    function: str,
    contracts: dict[str, tuple[Contract, ...]],
    others: dict[str, tuple[type, ...]],
    arguments: dict[str, Any],
) -> None:
    """A ``TypeError`` for what is neither a tensor nor of another type that the signature names."""
    for name, alternatives in contracts.items():
        value = arguments.get(name)
        if name not in arguments or isinstance(value, (Tensor, *others[name])):
            continue
        words = [*map(str, alternatives), *(t.__name__ for t in others[name])]
        expected = " or ".join(words).replace("NoneType", "None")
        advice = "; torch.as_tensor turns numbers into a tensor"
        raise TypeError(
            f"{function}: `{name}` should be {expected}, got a {type(value).__name__}"
            f"{advice if hasattr(value, '__len__') and not isinstance(value, str) else ''}"
        )


def _bind(
    function: str,
    name: str,
    value: Tensor,
    alternatives: tuple[Contract, ...],
    sizes: dict[str, int],
    setters: dict[str, str],
) -> None:
    complaints = []
    for contract in alternatives:
        complaint, bound = _fit(contract, value, sizes, setters)
        if complaint is None:
            sizes.update(bound)
            setters.update(dict.fromkeys(bound.keys() - setters.keys(), name))
            return
        complaints.append(complaint)
    expected = " or ".join(map(str, alternatives))
    # Among several alternatives the telling complaint is the one about the right number of axes.
    telling = next((c for c in complaints if not c.startswith("it has")), complaints[0])
    raise ShapeError(
        f"{function}: `{name}` should be {expected}, "
        f"got {_dtype(value)} of shape {tuple(value.shape)}: {telling}"
    )


def _fit(
    contract: Contract, value: Tensor, sizes: dict[str, int], setters: dict[str, str]
) -> tuple[str | None, dict[str, int]]:
    """What is wrong with ``value`` (None if nothing), and the letters it binds."""
    if contract.dtypes is not None and _dtype(value) not in contract.dtypes:
        return _wrong_dtype(contract, value), {}
    axes, shape = contract.axes, tuple(value.shape)
    if len(shape) != len(axes) and not (contract.leading and len(shape) >= len(axes)):
        at_least = "at least " if contract.leading else ""
        has = f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}"
        return f"it has {has}, expected {at_least}{len(axes)}", {}
    bound: dict[str, int] = {}
    for letter, size in zip(axes, shape[len(shape) - len(axes) :], strict=True):
        known = (
            int(letter) if letter.isdigit() else sizes.get(letter.lstrip("#"), bound.get(letter))
        )
        if letter.startswith("#") and size == 1:
            continue
        if known is not None and known != size:
            setter = setters.get(letter.lstrip("#"))
            return f"{letter.lstrip('#')} is {size}, expected {known}" + (
                f" as in `{setter}`" if setter else ""
            ), {}
        if size == 0 and letter.lstrip("#") not in MAY_BE_EMPTY:
            return f"{letter.lstrip('#')} is 0, and there is nothing to attend to", {}
        if not letter.isdigit() and letter != "_":
            bound[letter.lstrip("#")] = size
    return None, bound


def _wrong_dtype(contract: Contract, value: Tensor) -> str:
    if contract.kind == "Complex" and value.is_floating_point():
        return "complex numbers are wanted; torch.complex(real, imaginary) makes them"
    if contract.kind == "Float" and value.is_complex():
        return "the dtype is complex, not a float; give its real and imaginary parts side by side"
    if contract.kind == "Bool" and value.is_floating_point():
        return (
            "masks here are bool, True = may attend; "
            "an additive mask (0 / -inf) is turned into one by `mask == 0`"
        )
    if contract.kind == "Bool":
        return "masks here are bool, True = may attend; for 0/1 numbers use `mask.bool()`"
    return f"the dtype is not a {contract.kind.lower()}"


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _contracts(annotation: Any) -> tuple[Contract, ...]:
    """The jaxtyping contracts inside an annotation, ``X | Y | None`` included."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is Union:
        return tuple(c for part in typing.get_args(annotation) for c in _contracts(part))
    if not hasattr(annotation, "dim_str"):
        return ()
    dtypes = annotation.dtypes
    return (
        Contract(
            kind=annotation.__name__.split("[")[0],
            dtypes=tuple(dtypes) if isinstance(dtypes, (tuple, list)) else None,
            letters=tuple(annotation.dim_str.split()),
        ),
    )


def _other_types(annotation: Any) -> tuple[type, ...]:
    """The classes beside tensors that an annotation allows: ``Pattern`` and None, say."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is Union:
        return tuple(t for part in typing.get_args(annotation) for t in _other_types(part))
    return (
        () if hasattr(annotation, "dim_str") or not isinstance(annotation, type) else (annotation,)
    )


def letters_of(function: Callable[..., Any]) -> dict[str, tuple[Contract, ...]]:
    """Argument name → its contracts, for whoever builds inputs from a signature; a field of a named
    tuple is called ``argument.field``."""
    parts = _parts(parameters_of(function))
    return {name: found for name, a in parts if (found := _contracts(a))}


def _is_tuple(annotation: Any) -> bool:
    """Whether it is a ``NamedTuple`` class."""
    return isinstance(annotation, type) and issubclass(annotation, tuple)


def _parts(annotations: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and annotations; those of a named tuple ``w`` are those of its fields, ``w.field``."""
    for name, annotation in annotations.items():
        if _is_tuple(annotation):
            fields = typing.get_type_hints(annotation, include_extras=True)
            yield from ((f"{name}.{field}", each) for field, each in fields.items())
        else:
            yield name, annotation


def regrouped(function: Callable[..., Any], tensors: Mapping[str, T]) -> dict[str, Any]:
    """Arguments of a function from tensors under the names of ``letters_of``: the fields of a
    named tuple are put together again."""
    annotations = parameters_of(function)
    found = dict.fromkeys(name.split(".")[0] for name in tensors)
    for name in found:
        fields = {
            part.split(".")[1]: x for part, x in tensors.items() if part.startswith(f"{name}.")
        }
        found[name] = annotations[name](**fields) if fields else tensors[name]
    return found
