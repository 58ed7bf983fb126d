"""The decorator of forms: precision is a property of a form, not a term of its equation.

A form that is decorated with ``form`` is written as in the paper. Whoever calls it with half
precisions has its sums in float32 and its output in half precision again; whoever calls it under
autocast has no product rounded. A form whose kernel takes half precisions as they are, as
PyTorch's fused attention does, is decorated with ``checked`` alone.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

import torch
from torch import Tensor

from attnlab.core.options import Options, parameters_of
from attnlab.core.precision import no_autocast
from attnlab.core.shapes import autocasts, checked

P = ParamSpec("P")
R = TypeVar("R")


@overload
def form(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def form(*, autocast: bool) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def form(function: Callable[..., Any] | None = None, /, *, autocast: bool = False) -> Any:
    """Check the arguments of a form, and compute it in float32 or wider, as ``upcasting`` does.

    Autocast is off, unless ``autocast`` allows it: users of a fast form turn autocast on so that
    products are rounded, and are faster.
    """
    if function is None:
        return functools.partial(_form, autocast=autocast)
    return _form(function, autocast=autocast)


def _form(function: Callable[P, R], *, autocast: bool) -> Callable[P, R]:
    return checked(upcasting(function, autocast=autocast))


def upcasting(function: Callable[P, R], *, autocast: bool = False) -> Callable[P, R]:
    """Compute a function in float32 or wider, and without autocast unless it is allowed.

    Its floating-point tensors, also those in tuples, are converted to one precision, float32 or
    the widest among them. The output has the dtype of the first of them. Of a pair of an output
    and a state the state is not converted: it would be rounded at every step.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        found: list[Tensor] = []
        _add_floats(found, (*args, *kwargs.values()))
        first, given = found[0], (args, kwargs)
        dtypes = {x.dtype for x in found}
        if dtypes not in _WIDE:
            common = _common(dtypes)
            cast = {name: _cast(x, common) for name, x in kwargs.items()}
            given = _cast(args, common), cast  # type: ignore[assignment]
        if autocast or not autocasts(first.device):
            out: Any = function(*given[0], **given[1])
        else:
            with no_autocast(first.device):
                out = function(*given[0], **given[1])
        if isinstance(out, tuple):
            return (_cast(out[0], first.dtype), *out[1:])  # type: ignore[return-value]
        return _cast(out, first.dtype)

    return call


_WIDE = ({torch.float32}, {torch.float64})


def _common(dtypes: set[torch.dtype]) -> torch.dtype:
    """float32, or the widest of these."""
    try:
        return functools.reduce(torch.promote_types, dtypes, torch.float32)
    except RuntimeError as error:
        names = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"tensors of {names} cannot be computed together ({error})") from error


def _add_floats(found: list[Tensor], values: Iterable[Any]) -> None:
    """Append the floating-point tensors among ``values``, and in tuples of them."""
    for x in values:
        if isinstance(x, Tensor):
            if x.dtype.is_floating_point:
                found.append(x)
        elif isinstance(x, tuple):
            _add_floats(found, x)


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """``x`` with its floating-point tensors in ``dtype``; named tuples stay what they are."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.dtype.is_floating_point and x.dtype != dtype else x
    if isinstance(x, tuple):
        parts = [_cast(part, dtype) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return x


def with_options(forms: Mapping[str, Callable[..., R]], options: Options) -> dict[str, Any]:
    """The forms with the options of their layer; a form that takes none stays as it is."""
    return {
        name: functools.partial(form, options=options) if "options" in parameters_of(form) else form
        for name, form in forms.items()
    }
