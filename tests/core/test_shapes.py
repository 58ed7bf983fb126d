"""The errors of the contract: which argument, what was expected, what came, in which letters."""

import pytest
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

import attnlab
from attnlab.core import shapes
from attnlab.core.shapes import ShapeError, checked, letters_of


@checked
def attend(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    mask: Bool[Tensor, "#b #h n m"] | Bool[Tensor, "n m"] | None = None,
    ids: Int[Tensor, "... 3"] | None = None,
) -> Tensor:
    """Sum of the scores."""
    return (q @ k.mT).sum()


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.zeros(shape) for shape in shapes]


def test_what_fits_passes() -> None:
    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    for mask in (None, torch.ones(5, 11).bool(), torch.ones(1, 3, 5, 11).bool()):
        attend(q, k, mask, ids=torch.zeros(4, 9, 3, dtype=torch.long))


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((2, 3, 5, 7), (2, 3, 11, 13)), r"`k` should be .* d is 13, expected 7 as in `q`"),
        (((2, 3, 5, 7), (2, 11, 7)), r"`k` should be .* it has 3 axes, expected 4"),
        (((2, 3, 0, 7), (2, 3, 11, 7)), r"`q` .* n is 0, and there is nothing to attend to"),
        (((2, 3, 5, 7), (2, 3, 11, 7), (5, 13)), r"`mask` .* m is 13, expected 11 as in `k`"),
        (((2, 3, 5, 7), (2, 3, 11, 7), (2, 5, 5, 11)), r"`mask` .* h is 5, expected 3 as in `q`"),
    ],
)
def test_what_does_not_fit_is_named(shapes, sentence: str) -> None:
    made = tensors(*shapes)
    with pytest.raises(ShapeError, match=sentence):
        attend(*made[:2], *(m.bool() for m in made[2:]))


def test_dtypes_are_named() -> None:
    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    with pytest.raises(ShapeError, match=r"attend: `q` .* got int64 .* the dtype is not a float"):
        attend(q.long(), k)
    with pytest.raises(ShapeError, match=r"additive mask .* turned into one by `mask == 0`"):
        attend(q, k, torch.zeros(5, 11))
    with pytest.raises(ShapeError, match=r"use `mask.bool\(\)`"):
        attend(q, k, torch.ones(5, 11, dtype=torch.uint8))
    with pytest.raises(ShapeError, match=r"`ids` should be Int\[\.\.\. 3\].* 3 is 2, expected 3"):
        attend(q, k, ids=torch.zeros(4, 2, dtype=torch.long))


def test_devices_are_named() -> None:
    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    with pytest.raises(ShapeError, match="`k` is on meta but `q` is on cpu; move them"):
        attend(q, k.to("meta"))


def test_one_dtype_unless_autocast_converts() -> None:
    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    with pytest.raises(ShapeError, match=r"attend: `k` is float64 but `q` is float32; .*q\.dtype"):
        attend(q, k.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(q, k.bfloat16()) == 0
    with pytest.raises(ShapeError, match=r"`k` is float16 but `q` is float32"):
        attend(q.to("meta"), k.to("meta").half())  # no autocast exists there


@pytest.mark.parametrize("stranger", [[[True]], "causal", 3.0, torch.ones(5, 11).bool().numpy()])
def test_what_is_no_tensor_is_refused(stranger: object) -> None:
    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    kind = type(stranger).__name__
    with pytest.raises(TypeError, match=rf"attend: `mask` .* or None, got a {kind}"):
        attend(q, k, stranger)
    with pytest.raises(TypeError, match=r"attend: `k` should be Float\[b h m d\], got a NoneType"):
        attend(q, None)


def test_an_error_names_the_class_that_was_built() -> None:
    with pytest.raises(ShapeError, match=r"^FullAttention\.forward: `x` should be"):
        attnlab.build("full", dim=4)(torch.ones(3, 4))


def test_python_itself_names_what_is_missing_or_unknown() -> None:
    (q,) = tensors((2, 3, 5, 7))
    with pytest.raises(TypeError, match=r"attend\(\) missing 1 required .* 'k'"):
        attend(q)
    with pytest.raises(TypeError, match=r"attend\(\) got an unexpected keyword argument 'dropout'"):
        attend(q, q, dropout=0.1)


def test_an_empty_batch_is_harmless() -> None:
    assert attend(*tensors((0, 3, 5, 7), (0, 3, 11, 7))) == 0


def test_steps_aside_while_torch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the check ran inside the traced graph")

    q, k = tensors((2, 3, 5, 7), (2, 3, 11, 7))
    monkeypatch.setattr(shapes, "check", never)
    with pytest.raises(AssertionError, match="the check ran"):
        attend(q, k)
    assert torch.compile(attend, fullgraph=True, backend="eager")(q, k) == 0


def test_letters_of() -> None:
    letters = {name: str(found[0]) for name, found in letters_of(attend).items()}
    assert letters == {
        "q": "Float[b h n d]",
        "k": "Float[b h m d]",
        "mask": "Bool[#b #h n m]",
        "ids": "Int[... 3]",
    }


def test_wrapped_functions_keep_their_name() -> None:
    assert attend.__name__ == "attend"
    assert attend.__doc__ == "Sum of the scores."


def test_right_calls_are_looked_at_once_and_wrong_ones_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, honest = [], shapes.check
    monkeypatch.setattr(shapes, "check", lambda *a: looked.append(a) or honest(*a))
    q, k, other = tensors((2, 3, 5, 17), (2, 3, 11, 17), (2, 3, 11, 13))
    for _ in range(3):
        attend(q, k)
        attend(q, k=k)
    assert len(looked) == 2
    for _ in range(3):
        with pytest.raises(ShapeError, match="d is 13, expected 17"):
            attend(q, other)
    assert len(looked) == 5
    attend(q.double(), k.double())
    assert len(looked) == 6


def test_what_only_autocast_allows_is_looked_at_again() -> None:
    q, k = tensors((2, 3, 5, 19), (2, 3, 11, 19))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attend(q, k.bfloat16())
    with pytest.raises(ShapeError, match="give them one dtype"):
        attend(q, k.bfloat16())


def test_memory_of_right_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "REMEMBERED", 2)
    for n in (5, 7, 11, 5, 7):
        attend(*tensors((1, 1, n, 23), (1, 1, n, 23)))
    passed = next(c.cell_contents for c in attend.__closure__ if isinstance(c.cell_contents, set))
    assert len(passed) <= 2


def test_a_context_at_the_place_of_a_padding_is_recognised() -> None:
    layer, x = attnlab.build("full", dim=12, heads=2), torch.randn(2, 3, 12)
    with pytest.raises(ShapeError, match=r"what `context` takes; give it by keyword: context=…"):
        layer(x, torch.randn(2, 5, 12))
    with pytest.raises(ShapeError, match="masks here are bool"):
        layer(x, torch.ones(2, 3))
    with pytest.raises(ShapeError, match="masks here are bool"):
        layer(x, torch.randn(2, 5, 12), context=x)
