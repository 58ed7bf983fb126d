"""Counts against what one computes by hand; axes are distinct primes."""

import gc
import math
import subprocess
import sys
import threading

import pytest
import sympy
import torch
import torch.nn.functional as F

from attnlab.measure.count import count, count_uncompiled, expected_exponent, exponent
from attnlab.mechanisms.dense import flash


def _leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


# ---- FLOPs


@pytest.mark.parametrize(
    ("call", "shapes", "forward", "backward"),
    [
        (torch.mm, [(3, 5), (5, 7)], 2 * 3 * 5 * 7, 3 * 2 * 3 * 5 * 7),
        (torch.bmm, [(2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7, 3 * 2 * 2 * 3 * 5 * 7),
        (torch.mv, [(3, 5), (5,)], 2 * 3 * 5, None),
        (torch.dot, [(5,), (5,)], 2 * 5, None),
        (torch.addmm, [(7,), (3, 5), (5, 7)], 2 * 3 * 5 * 7, 3 * 2 * 3 * 5 * 7),
        (torch.baddbmm, [(2, 3, 7), (2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7, None),
        (torch.matmul, [(2, 3, 5), (5, 7)], 2 * 2 * 3 * 5 * 7, 3 * 2 * 2 * 3 * 5 * 7),
        (F.linear, [(2, 3, 5), (7, 5), (7,)], 2 * 2 * 3 * 5 * 7, 3 * 2 * 2 * 3 * 5 * 7),
        (torch.cdist, [(3, 5), (7, 5)], 2 * 3 * 5 * 7, None),
    ],
)
def test_products(call, shapes, forward, backward):
    leaves = [_leaf(*shape) for shape in shapes]
    assert count(call, *leaves).flops == forward
    if backward is not None:
        assert count(call, *leaves, backward=True).flops == backward


@pytest.mark.parametrize("left", [True, False])
def test_a_triangular_solve_is_half_a_product(left):
    L, right = torch.eye(5).repeat(2, 1, 1), torch.randn(2, *((5, 7) if left else (7, 5)))
    counted = count(lambda *x: torch.linalg.solve_triangular(*x, upper=False, left=left), L, right)
    assert counted.flops_by_operation == {"linalg_solve_triangular": 2 * 5 * 5 * 7}


def test_einsum_is_its_products():
    a, b = torch.randn(2, 3, 5), torch.randn(2, 5, 7)
    counted = count(torch.einsum, "bij,bjk->bik", a, b)
    assert counted.flops == 2 * 2 * 3 * 5 * 7
    assert counted.flops_by_operation == {"bmm": counted.flops}


def test_complex_products_cost_four_real_ones():
    a, b = torch.randn(3, 5, dtype=torch.complex64), torch.randn(5, 7, dtype=torch.complex64)
    assert count(torch.mm, a, b).flops == 4 * 2 * 3 * 5 * 7


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_on_the_cpu_and_its_backward(causal):
    b, h, n, m, d = 2, 3, 11, 13, 7
    leaves = _leaf(b, h, n, d), _leaf(b, h, m, d), _leaf(b, h, m, d)

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    product = 2 * b * h * n * m * d
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    assert count(attend, *leaves).flops_by_operation == {kernel: 2 * product}
    both = count(attend, *leaves, backward=True)
    assert both.flops_by_operation == {kernel: 2 * product, f"{kernel}_backward": 5 * product}
    assert both.flops == 7 * product


def test_attention_whose_values_have_another_width():
    """PyTorch takes it by parts: the weights are kept, so nothing is computed twice."""
    b, h, n, m, d, e = 2, 3, 11, 13, 7, 5
    leaves = _leaf(b, h, n, d), _leaf(b, h, m, d), _leaf(b, h, m, e)
    forward = 2 * b * h * n * m * (d + e)
    attend = F.scaled_dot_product_attention
    assert count(attend, *leaves).flops_by_operation == {"bmm": forward}
    assert count(attend, *leaves, backward=True).flops == 3 * forward


def test_convolutions():
    b, inner, outer, n, width, groups = 2, 6, 9, 17, 5, 3
    x, weight = _leaf(b, inner, n), _leaf(outer, inner // groups, width)
    flops = 2 * b * outer * (n - width + 1) * (inner // groups) * width

    def convolve(x, weight):
        return F.conv1d(x, weight, groups=groups)

    assert count(convolve, x, weight).flops == flops
    assert count(convolve, x, weight, backward=True).flops == 3 * flops
    assert count(convolve, x.detach(), weight, backward=True).flops == 2 * flops


def test_transposed_convolution():
    x, weight = torch.randn(2, 3, 11), torch.randn(3, 5, 7)
    assert count(F.conv_transpose1d, x, weight).flops == 2 * 2 * 3 * 11 * 5 * 7


def test_fourier_transforms():
    x = torch.randn(3, 16, dtype=torch.complex64)
    assert count(torch.fft.fft, x).flops == 5 * 3 * 16 * 4
    assert count(torch.fft.fft2, x).flops == round(5 * 3 * 16 * math.log2(3 * 16))
    assert count(torch.fft.rfft, x.real).flops == 5 * 3 * 16 * 4 / 2
    assert count(torch.fft.irfft, torch.fft.rfft(x.real)).flops == 5 * 3 * 16 * 4 / 2
    assert count(torch.fft.fft, x[:, :1]).flops == 0


def test_inference_mode_hides_nothing():
    with torch.inference_mode():
        q = torch.randn(2, 3, 11, 7)
        assert count(F.linear, q, torch.randn(5, 7)).flops == 2 * 2 * 3 * 11 * 7 * 5
        assert count(F.scaled_dot_product_attention, q, q, q).flops == 4 * 2 * 3 * 11 * 11 * 7


def test_multihead_attention_is_counted_by_its_parts_on_its_fast_path_too():
    b, n, dim = 2, 5, 6
    module = torch.nn.MultiheadAttention(dim, 2, batch_first=True).eval()
    x = torch.randn(b, n, dim)
    with torch.no_grad():
        counted = count(module, x, x, x)
    assert counted.flops == 2 * b * n * dim * 4 * dim + 4 * b * n * n * dim
    assert torch.backends.mha.get_fastpath_enabled()


def test_elementwise_work_is_written_and_no_flops():
    x = torch.randn(3, 5)
    counted = count(lambda: (x * x).view(15, 1).expand(15, 7).sum())
    assert (counted.flops, counted.elements_written) == (0, 15 + 1)


def test_running_sums_and_sorts_are_counted():
    x = torch.randn(3, 64)
    assert count(lambda: x.cumsum(0)).flops == 3 * 64
    assert count(lambda: x.topk(5)).flops == 3 * 64
    assert count(lambda: x.sort()).flops == 3 * 64 * 6
    assert count(lambda: x.T.sort(dim=0, stable=True)).flops == 3 * 64 * 6
    assert count(lambda: x[:, :1].sort()).flops == 0


# ---- the largest tensor


def test_largest_tensor_is_named():
    largest = count(torch.mm, torch.randn(3, 5), torch.randn(5, 7)).largest_tensor
    assert (largest.elements, largest.bytes) == (21, 84)
    assert (largest.shape, largest.operation) == ((3, 7), "mm")


def test_views_of_inputs_are_no_allocations():
    x = torch.randn(101, 3)
    counted = count(lambda: x.view(-1)[:5].expand(11, 5))
    assert (counted.largest_tensor.elements, counted.peak_bytes) == (0, 0)
    copied = count(lambda: x.mT.reshape(-1)[:5].expand(11, 5))  # of a transposed one: a copy
    assert (copied.largest_tensor.elements, copied.peak_bytes) == (303, 1212)


def test_work_in_place_allocates_nothing():
    x = torch.randn(7)
    counted = count(lambda: x.mul_(2).add_(1))
    assert (counted.peak_bytes, counted.elements_written) == (0, 14)


def test_constants_are_allocations():
    assert count(lambda: torch.tensor([2.0, 3.0, 5.0])).largest_tensor.bytes == 12


# ---- the peak


def test_peak_follows_what_lives_and_dies():
    def program(x):  # x: 1000 floats, the caller's
        y = x * 2  # 4000 bytes live
        z = y + 1  # 8000
        del y  # 4000
        w = torch.cat([z, z])  # 12000: the peak
        del z  # 8000
        return w[:10].clone()  # 8040, and 40 at the end

    assert count(program, torch.randn(1000)).peak_bytes == 12_000


def test_a_view_keeps_its_storage_alive():
    def program(x):
        tail = (x * 2)[:1]
        return tail, x + 1

    assert count(program, torch.randn(1000)).peak_bytes == 8000


def test_what_autograd_keeps_counts():
    def program(x):
        return x.exp().exp().exp()

    x = _leaf(1000)
    with torch.no_grad():
        assert count(program, x).peak_bytes == 8000  # two at a time
    assert count(program, x).peak_bytes == 12_000  # all three are kept for the backward pass
    # Back through the second: the three, the gradient that comes and the one that goes. The kept
    # ones die one by one, the last of them not: it is the result.
    assert count(program, x, backward=True).peak_bytes == 20_000


def test_resized_storage():
    def program():
        return torch.empty(10).resize_(1000)

    counted = count(program)
    assert counted.peak_bytes == 4000
    assert counted.largest_tensor.elements == 1000


def test_counts_repeat_and_leave_nothing_behind():
    x, weight = _leaf(3, 5), _leaf(7, 5)
    first, second = (count(F.linear, x, weight, backward=True) for _ in range(2))
    assert first == second
    assert x.grad is None
    assert weight.grad is None
    assert gc.isenabled()


def test_a_call_that_is_not_compiled_is_counted_alike():
    q, k, v = (torch.randn(2, 3, 70, 5, requires_grad=True) for _ in range(3))
    for form in (flash.tiled, F.scaled_dot_product_attention):
        both = [each(form, q, k, v, backward=True) for each in (count, count_uncompiled)]
        assert both[0] == both[1]
        assert both[0].flops > 0


def test_storages_that_outlive_the_count_are_freed_without_error():
    kept = []
    assert count(lambda: kept.append(torch.ones(1000))).peak_bytes == 4000
    kept.clear()


# ---- refusals


def test_backward_needs_something_that_requires_a_gradient():
    with pytest.raises(ValueError, match="needs an output that requires a gradient"):
        count(torch.mm, torch.randn(3, 5), torch.randn(5, 7), backward=True)


def test_sparse_tensors_are_refused():
    with pytest.raises(ValueError, match=r"dense .* torch.sparse_coo"):
        count(torch.sparse.mm, torch.eye(3).to_sparse(), torch.randn(3, 5))


def test_opaque_kernels_are_refused_and_settings_come_back():
    module = torch.nn.Bilinear(2, 3, 5)
    with pytest.raises(ValueError, match="cannot see inside the kernel _trilinear"):
        count(module, torch.randn(7, 2), torch.randn(7, 3))
    assert torch.backends.mha.get_fastpath_enabled()
    assert gc.isenabled()


def test_settings_come_back_after_counts_that_overlap():
    """A widget may count beside a cell that counts; here the one that began first ends first."""
    began, end = threading.Event(), threading.Event()

    def first():
        began.set()
        assert end.wait(60)

    beside = threading.Thread(target=count, args=(first,))
    beside.start()
    assert began.wait(60)

    def second():
        end.set()
        beside.join(60)

    count(second)
    assert not beside.is_alive()
    assert torch.backends.mha.get_fastpath_enabled()
    assert gc.isenabled()


# ---- exponents


def _linear(x):
    return x @ torch.ones(x.shape[-1], 3)


def _quadratic(x):
    return x @ x.mT


def _root(x):
    """Blocks of √n rows, each dense within: n √n."""
    return [_quadratic(block) for block in x.split(math.isqrt(len(x)))]


@pytest.mark.parametrize(("call", "power"), [(_linear, 1), (_root, 1.5), (_quadratic, 2)])
def test_counted_work_grows_with_its_exponent(call, power):
    sizes = [64, 256, 1024]
    flops = [count(call, torch.randn(n, 5)).flops for n in sizes]
    assert exponent(sizes, flops) == pytest.approx((power, 0), abs=1e-6)


def test_largest_tensor_grows_with_its_exponent():
    sizes = [64, 256, 1024]
    elements = [count(_root, torch.randn(n, 5)).largest_tensor.elements for n in sizes]
    assert exponent(sizes, elements).slope == pytest.approx(1)


def test_standard_error_is_the_textbook_one():
    sizes = [1, math.e, math.e**2]
    values = [1, math.e**2, math.e]  # slope 1/2, residuals −1/2, 1, −1/2
    assert exponent(sizes, values) == pytest.approx((0.5, math.sqrt(1.5 / 1 / 2)))
    assert exponent([2, 4], [3, 12]) == pytest.approx((2, 0))


def test_expected_exponent_of_a_card():
    n, d = sympy.symbols("n d", positive=True)
    sizes = [128, 256, 512]
    assert expected_exponent(n**2 * d, "n", sizes, {"d": 7}) == pytest.approx(2)
    assert expected_exponent("n*sqrt(n)", "n", sizes, {}) == pytest.approx(1.5)
    assert expected_exponent(n * d, "d", [2, 3, 5], {"n": 11, "w": 3}) == pytest.approx(1)
    mixed = expected_exponent(n * d + n**2, "n", sizes, {"d": 256})
    costs = [size * 256 + size**2 for size in sizes]
    assert mixed == pytest.approx(exponent(sizes, costs).slope)
    assert 1.2 < mixed < 1.8


def test_exponents_refuse_what_they_cannot_fit():
    with pytest.raises(ValueError, match="2 sizes and 3 values"):
        exponent([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="two different sizes"):
        exponent([4, 4], [1, 2])
    with pytest.raises(ValueError, match="positive"):
        exponent([1, 2], [0, 2])
    with pytest.raises(ValueError, match="the letters d, w"):
        expected_exponent("n*d*w", "n", [2, 3], {"h": 1})


def test_the_first_count_of_a_process_is_like_the_second() -> None:
    program = (
        "import torch; from attnlab.measure.count import count;"
        "from attnlab.mechanisms.dense.full import naive;"
        "x = torch.randn(1, 2, 64, 16, requires_grad=True);"
        "mask = torch.ones(64, 64).tril().bool();"
        "f = lambda x: naive(x, x, x, mask=mask);"
        "print(*(count(f, x, backward=True).peak_bytes for _ in range(2)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    first, second = run.stdout.split()
    assert first == second


def test_gradients_of_a_leaf_outside_the_call_are_counted():
    q, k, v = _leaf(3, 1, 2, 64, 16)
    assert count(flash.tiled, q, k, v, backward=True).flops > 2 * count(flash.tiled, q, k, v).flops


def test_a_long_chain_of_operations_is_counted():
    """The graph of a loop is as deep as the loop is long, and is freed without recursion."""

    def chain(x):
        for _ in range(60_000):
            x = x + 1
        return x

    x = torch.ones((), requires_grad=True)
    assert count(chain, x, backward=True).operations == 60_000


def test_a_long_graph_whose_leaf_is_outside_the_call_is_refused(monkeypatch):
    monkeypatch.setattr("attnlab.measure.count._WALKED", 0)
    q, k, v = _leaf(3, 1, 2, 8, 4)
    with pytest.raises(ValueError, match="not views of one that does"):
        count(flash.tiled, q, k, v, backward=True)
