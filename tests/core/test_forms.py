"""Forms: sums in float32, outputs as the inputs are, autocast off unless it is allowed."""

from typing import NamedTuple

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core import precision
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.shapes import ShapeError, letters_of, regrouped
from attnlab.mechanisms.recurrence import retention


class Scales(NamedTuple):
    one: Float[Tensor, "d"]
    other: Float[Tensor, "d"]


@form
def scaled(x: Float[Tensor, "n d"], scales: Scales, *, by: float = 1.0) -> Tensor:
    seen.append((x.dtype, scales.one.dtype, type(scales)))
    return x * scales.one * scales.other * by


seen: list[tuple[torch.dtype, torch.dtype, type]] = []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precisions_are_computed_in_float32(dtype: torch.dtype) -> None:
    out = scaled(torch.ones(3, 5, dtype=dtype), Scales(*torch.ones(2, 5, dtype=dtype)))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert seen[-1] == (wide, wide, Scales)
    assert out.dtype == dtype


def test_a_long_sum_does_not_stop_growing() -> None:
    added = upcasting(lambda x: sum(x.unbind(), x.new_zeros(())))
    ones = torch.ones(1000, dtype=torch.bfloat16)
    assert added(ones) == torch.tensor(1000.0).bfloat16()


def test_the_state_beside_an_output_is_not_rounded() -> None:
    out, state = upcasting(lambda x, state: (x + state, state + 2**-20))(
        torch.ones(2).half(), torch.ones(2)
    )
    assert (out.dtype, state.dtype) == (torch.float16, torch.float32)
    assert torch.equal(state, torch.full((2,), 1 + 2**-20))


def test_autocast_rounds_the_products_of_a_form_only_where_it_may() -> None:
    x = torch.full((1, 1), 1 + 2**-12)
    exact, fast = form(product), form(autocast=True)(product)
    with torch.autocast("cpu", torch.bfloat16):
        assert exact(x, x) == x * x
        assert fast(x, x) == 1
        assert fast(x, x).dtype == torch.float32


def product(x: Float[Tensor, "n d"], y: Float[Tensor, "d m"]) -> Float[Tensor, "n m"]:
    return x @ y


def test_the_fields_of_a_named_tuple_are_checked_as_arguments_are() -> None:
    x, right, wrong = torch.randn(3, 5), torch.ones(5), torch.ones(7)
    with pytest.raises(ShapeError, match=r"`scales.other` should be Float\[d\].* d is 7, expected"):
        scaled(x, Scales(right, wrong))
    with pytest.raises(ShapeError, match=r"`scales.one` is float64 but `x` is float32"):
        scaled(x, Scales(right.double(), right))
    with pytest.raises(TypeError, match=r"`scales\.one` should be Float"):
        scaled(x, Scales(1.0, right))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="scales should be a Scales"):
        scaled(x, (right, right))  # type: ignore[arg-type]


def test_letters_of_a_named_tuple() -> None:
    assert list(letters_of(scaled)) == ["x", "scales.one", "scales.other"]
    tensors = dict(zip(letters_of(scaled), torch.ones(3, 2, 2), strict=True))
    found = regrouped(scaled, tensors)
    assert list(found) == ["x", "scales"]
    assert isinstance(found["scales"], Scales)


def test_only_forms_that_take_options_are_given_them() -> None:
    options = retention.RetentionOptions(chunk=3)
    forms = with_options(retention.FORMS, options)
    assert forms["naive"] is retention.naive
    assert forms["chunked"].keywords == {"options": options}


@pytest.mark.parametrize(("old", "new"), precision.RENAMED.items())
def test_an_old_name_says_the_new_one(old: str, new: str) -> None:
    assert hasattr(precision, new)
    with pytest.raises(ImportError, match=f"is called {new} today"):
        getattr(precision, old)
