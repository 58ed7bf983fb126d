"""Floating-point operations of one ATen operation, from the shapes it is called with.

The rule of the field: a multiply-add is 2. Matrix products, triangular solves, convolutions,
attention kernels, Fourier transforms, running sums (1 for each element) and sorts (log₂ N for each
of N elements, a comparison taken as 1) are counted; a bias, a softmax, products and sums over a
list of edges (`embedding_bag`) or any other elementwise work is not (`count` reports the elements
written, for mechanisms that mix without a matrix product). A complex multiply-add is four real
ones. Attention kernels are counted over the whole n × m rectangle, causal or not: what they skip
depends on the kernel's block size, not on the mechanism.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Formula = Callable[[Sequence[Any], Any], int]


def _weight(tensor: Tensor) -> int:
    return 8 if tensor.is_complex() else 2


def _product(left: Tensor, right: Tensor) -> int:
    """(…, n, k) times (…, k, m), or a matrix or vector times a vector."""
    columns = right.shape[-1] if right.ndim > 1 else 1
    return _weight(left) * left.numel() * columns


def _distances(left: Tensor, right: Tensor) -> int:
    """The inner products of every row of (…, n, d) with every row of (…, m, d)."""
    return _weight(left) * left.numel() * right.shape[-2]


def _convolution(inputs: Tensor, weight: Tensor, output: Tensor, transposed: bool) -> int:
    """One product with the kernel per output position (transposed: per input position)."""
    positions = inputs if transposed else output
    return _weight(inputs) * inputs.shape[0] * math.prod(positions.shape[2:]) * weight.numel()


def _convolution_backward(args: Sequence[Any], _: Any) -> int:
    """One more convolution for the input's gradient and one for the weight's, where needed."""
    output, inputs, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    return sum(wanted[:2]) * _convolution(inputs, weight, output, transposed)


def _attention(tensors: Sequence[Tensor], of_keys: int, of_values: int) -> int:
    query, key, value = tensors
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    return 2 * scores * (of_keys * query.shape[-1] + of_values * value.shape[-1])


def _attention_forward(args: Sequence[Any], _: Any) -> int:
    """q kᵀ over the head width and weights · v over the value width."""
    return _attention(args[:3], of_keys=1, of_values=1)


def _attention_backward(args: Sequence[Any], _: Any) -> int:
    """q kᵀ once more, dq, dk over the head width; dv, d(weights) over the value width."""
    return _attention(args[1:4], of_keys=3, of_values=2)


def _fourier(tensor: Tensor, dims: Sequence[int], real: bool) -> int:
    """5 N log₂ N for a complex transform of N points, half of it where one side is real."""
    points = math.prod(tensor.shape[dim] for dim in dims)
    operations = 5 * tensor.numel() * math.log2(points) if points > 1 else 0.0
    return round(operations / 2 if real else operations)


def _scan(args: Sequence[Any], _: Any) -> int:
    """One addition, multiplication or comparison for each element."""
    return int(args[0].numel())


def _sort(args: Sequence[Any], out: Any) -> int:
    """N log₂ N comparisons for each sorted row of N elements; the axis is the only whole number."""
    tensor = args[0]
    axes = [each for each in args[1:] if type(each) is int] or [-1]
    length = tensor.shape[axes[0]] if tensor.ndim else 1
    return round(tensor.numel() * math.log2(length)) if length > 1 else 0


def _from(first: int) -> Formula:
    return lambda args, _: _product(args[first], args[first + 1])


def _triangular(args: Sequence[Any], _: Any) -> int:
    """Half of a product with the matrix, for each column of the right side."""
    matrix, right = args[0], args[1]
    return _weight(matrix) * right.numel() * matrix.shape[-1] // 2


def _recurrent_layer(args: Sequence[Any], passes: int) -> int:
    """(n, b, inputs), and the matrices of all gates for the inputs and for the hidden state."""
    steps = math.prod(args[0].shape[:2])
    return passes * 2 * steps * (args[1].numel() + args[2].numel())


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm"), _from(0)),
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "addmv", "_addmm_activation"), _from(1)),
    **dict.fromkeys(
        ("_cdist_forward", "_euclidean_dist"), lambda args, _: _distances(args[0], args[1])
    ),
    **dict.fromkeys(
        ("convolution", "_convolution"),
        lambda args, out: _convolution(args[0], args[1], out, transposed=args[6]),
    ),
    "convolution_backward": _convolution_backward,
    "linalg_solve_triangular": _triangular,
    "mkldnn_rnn_layer": lambda args, _: _recurrent_layer(args, 1),
    "mkldnn_rnn_layer_backward": lambda args, _: _recurrent_layer(args, 2),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_logcumsumexp", "topk"), _scan
    ),
    **dict.fromkeys(("sort", "argsort"), _sort),
    "_fft_c2c": lambda args, out: _fourier(out, args[1], real=False),
    "_fft_r2c": lambda args, out: _fourier(args[0], args[1], real=True),
    "_fft_c2r": lambda args, out: _fourier(out, args[1], real=True),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        ),
        _attention_forward,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        _attention_backward,
    ),
}

# Kernels that hold matrix products of their own and have no formula above: counting them as
# zero would be wrong, so `count` refuses them.
OPAQUE = frozenset(
    {
        "_transformer_encoder_layer_fwd",
        "_native_multi_head_attention",
        "_flash_attention_forward",
        "_efficient_attention_forward",
        "_trilinear",
        "_cudnn_rnn",
        "_thnn_fused_lstm_cell",
        "_thnn_fused_gru_cell",
    }
)
