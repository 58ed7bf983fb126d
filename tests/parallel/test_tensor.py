"""A model divided among processes is the model: values, gradients, all-reduces, refusals."""

from contextlib import suppress

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import attnlab
from attnlab.parallel.launch import in_processes
from attnlab.parallel.tensor import COLUMNS, ROWS, divided, numbers_sent, parallelize

MODELS = {
    "rope and gates": {"positions": "rope", "feed": "gated"},
    "fewer heads of keys": {"attention": "multi_query", "attention_options": {"kv_heads": 2}},
    "an encoder and a decoder": {"kind": "encoder_decoder"},
}


def models():
    """And every mechanism of the catalogue whose heads can be divided."""
    found = dict(MODELS)
    for card in attnlab.cards():
        with suppress(ValueError):
            if card.mixes and any(
                "query" in each for each in divided(model_of({"attention": card.name}), 2)
            ):
                found[card.name] = {"attention": card.name}
    return found


def model_of(options):
    torch.manual_seed(1)
    sizes = {"dim": 16, "layers": 2, "heads": 4, "max_len": 11}
    model = attnlab.TinyTransformer(13, **sizes, **options).double()
    with torch.no_grad():  # biases that are zero would hide one that is added twice
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    return model


class Reduced(TorchDispatchMode):
    """How many numbers go into all-reduces."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "all_reduce" in str(function):
            self.numbers += args[0].numel()
        return function(*args, **(kwargs or {}))


def logits_and_gradients(model):
    """Logits, gradients, and the numbers in all-reduces forward and backward."""
    tokens = torch.arange(22).reshape(2, 11) * 5 % 13
    with Reduced() as forward:
        logits = model(tokens, source=tokens) if model.kind == "encoder_decoder" else model(tokens)
    with Reduced() as backward:
        logits.square().mean().backward()
    grads = {}
    for name, each in model.named_parameters():
        grad = each.grad
        grads[name] = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
    return logits.detach(), grads, forward.numbers, backward.numbers


def divided_models(group, options_of):
    found = {}
    for name, options in options_of.items():
        model = parallelize(model_of(options))
        own = sum(getattr(p, "_local_tensor", p).numel() for p in model.parameters())
        found[name] = (*logits_and_gradients(model), own)
    return found


@pytest.mark.parametrize("processes", [2])
def test_values_and_gradients_of_divided_models(processes):
    options_of = models()
    assert {"full", "flash", "longformer", "sparse_transformer", "linear", "moba"} <= set(
        options_of
    )
    for rank in in_processes(divided_models, processes, options_of):
        for name, options in options_of.items():
            logits, grads, forward, backward, own = rank[name]
            model = model_of(options)
            exact, exact_grads, *_ = logits_and_gradients(model)
            torch.testing.assert_close(logits, exact, rtol=1e-12, atol=1e-13)
            for parameter, grad in exact_grads.items():
                torch.testing.assert_close(grads[parameter], grad, rtol=1e-10, atol=1e-13)
            # Of what is divided each process holds its part; all else is whole.
            split = sum(
                model.get_submodule(each).weight.numel() for each in divided(model, processes)
            )
            whole = sum(p.numel() for p in model.parameters())
            assert own <= whole - split * (processes - 1) // processes
            # A ring sends 2 (P - 1)/P of the numbers that an all-reduce is given.
            if options.get("kind") is None:
                sent = [2 * (processes - 1) * x // processes for x in (forward, backward)]
                gates = options.get("feed") == "gated"
                assert tuple(sent) == numbers_sent(2, 11, 16, 2, processes, gates=gates)


def test_which_matrices_go_which_way():
    model = model_of({"feed": "gated"})
    plan = divided(model, 2)
    layer = "decoder.blocks.0"
    assert {name: way for name, way in plan.items() if name.startswith(layer)} == {
        f"{layer}.attention.heads.query": COLUMNS,
        f"{layer}.attention.heads.key": COLUMNS,
        f"{layer}.attention.heads.value": COLUMNS,
        f"{layer}.attention.heads.output": ROWS,
        f"{layer}.feed_forward.expand": COLUMNS,
        f"{layer}.feed_forward.opens": COLUMNS,
        f"{layer}.feed_forward.contract": ROWS,
    }


@pytest.mark.parametrize(
    ("options", "processes", "sentence"),
    [
        ({}, 3, "4 heads of queries and 4 of keys cannot be divided among 3 processes"),
        (MODELS["fewer heads of keys"], 4, "4 heads of queries and 2 of keys cannot be divided"),
        ({"hidden": 15}, 2, "a hidden width of 15 cannot be divided among 2 processes"),
        ({"positions": "alibi"}, 2, "has a bias for each head, which is not divided"),
        ({"attention": "sink"}, 2, "more than projections around its heads"),
    ],
)
def test_what_cannot_be_divided_is_refused(options, processes, sentence):
    with pytest.raises(ValueError, match=sentence):
        divided(model_of(options), processes)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="Linear has no layer that can be divided"):
        divided(torch.nn.Linear(2, 2), 2)
