"""Bad input to the lens is answered in a sentence that names the argument, at the call."""

import numpy as np
import pytest
import torch
from torch import nn

from attnlab.core.probe import record
from attnlab.lens.heads import head_statistics
from attnlab.lens.mixing import mixing_matrix, mixing_of
from attnlab.lens.spectrum import Spectrum, spectrum
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense.full import FullAttention

W = torch.full((2, 1, 3, 3), 1 / 3)
X = torch.randn(2, 5, 6)
Q = torch.randn(2, 3, 5, 4)
MODEL = nn.Sequential(FullAttention(6, 3), nn.Linear(6, 6))
FOUND = Spectrum(np.ones(3), (3, 3))
with watch(MODEL) as SEEN:
    MODEL(X)
with watch(MODEL) as NOTHING:
    pass


def holding(value, tensor=W):
    new = tensor.clone()
    new.view(-1)[-1] = value
    return new


CALLS = {
    # watch: at the call, before any block is entered
    "watch None": (lambda: watch(None), TypeError, r"looks inside an nn.Module, got None"),
    "watch a class": (lambda: watch(nn.Linear), TypeError, "the class Linear itself; make an"),
    "watch a list": (lambda: watch([MODEL]), TypeError, "looks inside an nn.Module, got list"),
    "keep": (lambda: watch(MODEL, keep="gpu"), ValueError, "keep should be None, "),
    "keep True": (lambda: watch(MODEL, keep=True), ValueError, "keep should be None"),
    "keep array": (lambda: watch(MODEL, keep=np.ones(2)), ValueError, "keep should be None"),
    "only unknown": (lambda: watch(MODEL, only="2"), ValueError, "only='2' matches no module"),
    "only of one": (lambda: watch(nn.ReLU(), only="a"), ValueError, "it has no modules inside"),
    "only a number": (lambda: watch(MODEL, only=3), TypeError, "only should be a pattern"),
    "only numbers": (lambda: watch(MODEL, only=[0]), TypeError, "only should be a pattern of mod"),
    "only empty": (lambda: watch(MODEL, only=[]), ValueError, "only is empty"),
    # what was seen
    "seen 9": (lambda: SEEN[9], IndexError, "there is no seen.9.; 1 attention call recog"),
    "seen -2": (lambda: SEEN[-2], IndexError, "there is no seen.-2"),
    "nothing": (lambda: NOTHING[0], IndexError, "no attention was recognised in Sequential"),
    "nothing by name": (lambda: NOTHING["0"], KeyError, "no attention was recognised in Seq"),
    "seen None": (lambda: SEEN[None], TypeError, "a number, a slice or the name of a module"),
    "seen 0.0": (lambda: SEEN[0.0], TypeError, "a number, a slice or the name of a module"),
    "seen name": (lambda: SEEN["1"], KeyError, "nearest are '0'"),
    # recordings
    "record": (lambda: record(3), TypeError, "record keeps notes in a Notes, got int"),
    # head statistics
    "NaN": (lambda: head_statistics(holding(torch.nan)), ValueError, "`weights` hold NaN or inf"),
    "inf": (lambda: head_statistics(holding(torch.inf)), ValueError, "`weights` hold NaN or inf"),
    "negative": (lambda: head_statistics(holding(-0.5)), ValueError, "`weights` are negative"),
    "no tensor": (lambda: head_statistics(W.numpy()), TypeError, "should be Float"),
    "tokens 5": (lambda: head_statistics(W, 5), TypeError, "tokens should be texts in a list, got"),
    "tokens None": (lambda: head_statistics(W, [None] * 3), TypeError, "tokens should be"),
    "tokens ids": (lambda: head_statistics(W, torch.arange(3)), TypeError, "should be texts"),
    "delimiters 5": (
        lambda: head_statistics(W, ["a"] * 3, delimiters=5), TypeError, "delimiters should be a"),
    "delimiters None": (
        lambda: head_statistics(W, ["a"] * 3, delimiters=None), TypeError, "delimiters should be"),
    "delimiters lists": (
        lambda: head_statistics(W, ["a"] * 3, delimiters=[["."]]), TypeError, "should be a text"),
    "mask": (
        lambda: head_statistics(W, mask=torch.ones(5, 5, dtype=torch.bool)), ValueError, "mask"),
    # mixing matrices
    "module None": (lambda: mixing_matrix(None, X), TypeError, "module should be callable, got No"),
    "module class": (lambda: mixing_matrix(nn.ReLU, X), TypeError, "the class ReLU itself; make"),
    "x None": (lambda: mixing_matrix(MODEL, None), TypeError, "x should be a tensor"),
    "x array": (lambda: mixing_matrix(MODEL, X.numpy()), TypeError, "x should be a tensor"),
    "x shape": (lambda: mixing_matrix(MODEL, X[0]), ValueError, r"x should be floating-point of"),
    "x empty": (lambda: mixing_matrix(MODEL, X[:, :0]), ValueError, "x should be floating-point"),
    "x no batch": (lambda: mixing_matrix(MODEL, X[:0]), ValueError, "x should be floating-point"),
    "x NaN": (lambda: mixing_matrix(MODEL, X * torch.nan), ValueError, "x holds NaN or infinity"),
    "x sparse": (lambda: mixing_matrix(MODEL, X.to_sparse()), TypeError, "dense tensor with val"),
    "x meta": (lambda: mixing_matrix(MODEL, X.to("meta")), TypeError, "dense tensor with val"),
    "padding list": (
        lambda: mixing_matrix(MODEL[0], X, padding=[True]), TypeError, "padding should be a bool"),
    "padding long": (
        lambda: mixing_matrix(MODEL[0], X, padding=torch.ones(2, 5)), TypeError, "padding should"),
    "padding shape": (
        lambda: mixing_matrix(MODEL[0], X, padding=torch.ones(2, 4, dtype=torch.bool)),
        ValueError, r"padding should be of shape \(2, 5\)"),
    "output None": (lambda: mixing_matrix(lambda x: None, X), ValueError, "got NoneType"),
    "output ()": (lambda: mixing_matrix(lambda x: (), X), ValueError, "got an empty tuple"),
    "output axes": (lambda: mixing_matrix(lambda x: x.sum(-1), X), ValueError, "3 axes like"),
    "output rows": (lambda: mixing_matrix(lambda x: x[:1], X), ValueError, "2 rows of a batch"),
    "output complex": (lambda: mixing_matrix(torch.fft.fft2, X), ValueError, "output is complex"),
    "output NaN": (lambda: mixing_matrix(lambda x: x / 0, X), ValueError, "output holds NaN"),
    "random": (lambda: mixing_matrix(nn.Dropout(0.5), X), ValueError, "two calls with the same"),
    "detached": (lambda: mixing_matrix(lambda x: x.sign().detach(), X), ValueError, "differentiab"),
    "form None": (lambda: mixing_of(None, Q, Q, Q), TypeError, "form should be a function"),
    "form shape": (lambda: mixing_of(lambda q, k, v: v[:, :, :3], Q, Q, Q), ValueError,
                   r"form should give \(2, 3, 5, …\)"),
    "form heads": (lambda: mixing_of(lambda q, k, v: v[:, :1], Q, Q, Q), ValueError, "form should"),
    "form shared": (lambda: mixing_of(lambda q, k, v: v, Q, Q[:, :2], Q[:, :2]), ValueError,
                    "2 key/value heads do not divide 3 query heads"),
    "form NaN": (lambda: mixing_of(lambda q, k, v: v / 0, Q, Q, Q), ValueError, "output holds NaN"),
    # spectra
    "spectrum NaN": (lambda: spectrum(holding(torch.nan)), ValueError, "NaN or infinity"),
    "spectrum list": (lambda: spectrum([[1.0]]), TypeError, "should be Float"),
    "share text": (lambda: FOUND.rank("0.9"), TypeError, "share should be a number, got '0.9'"),
    "share None": (lambda: FOUND.rank(None), TypeError, "share should be a number, got None"),
    "share True": (lambda: FOUND.rank(True), TypeError, "share should be a number, got True"),
    "share NaN": (lambda: FOUND.rank(float("nan")), ValueError, "0 < share ≤ 1, got nan"),
    "share 90": (lambda: FOUND.rank(90), ValueError, "0 < share ≤ 1, got 90"),
    "of": (lambda: FOUND.cumulative("value"), ValueError, "did you mean 'values'"),
    "of list": (lambda: FOUND.cumulative(["energy"]), ValueError, "there is no kind of share"),
    "of None": (lambda: FOUND.rank(0.5, None), ValueError, "there is no kind of share"),
}  # fmt: skip


@pytest.mark.parametrize("which", CALLS)
def test_a_bad_call_ends_in_a_sentence(which):
    call, error, sentence = CALLS[which]
    with pytest.raises(error, match=sentence):
        call()


def test_weights_of_rows_that_do_not_count_may_be_nan():
    padding = torch.tensor([[True] * 3, [True, True, False]])
    spoiled = W.clone()
    spoiled[1, :, 2] = torch.nan
    spoiled[1, :, :, 2] *= 1
    found = head_statistics(spoiled, padding=padding)
    assert np.isfinite(found.entropy).all()
    with pytest.raises(ValueError, match="rows that may attend to nothing"):
        head_statistics(spoiled)


def test_integers_of_numpy_are_welcome():
    assert SEEN[np.int64(0)] is SEEN[0]
    assert FOUND.rank(np.float32(0.5)) == FOUND.rank(0.5)
