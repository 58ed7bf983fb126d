"""Mixtures of experts: grouped beside the loop, and beside Hugging Face's Switch and Mixtral."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.experts import Routed
from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

EXPERTS, DIM = 8, 256
HIDDEN = 3 * DIM  # of Mixtral's experts 2·DIM, which have three matrices and not two
PASSES = ("forward", "forward and backward")
FREE: dict[str, Any] = {"capacity": None, "evaluation_capacity": None}
Layer = Callable[[Tensor], Tensor]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    n, repeats = (64, 1) if quick else (4096, 11)
    for which in PASSES:
        for name in ("switch", "gshard"):
            grouped, loop = ours(name), ours(name, "naive")
            loop.load_state_dict(grouped.state_dict())
            figure = f"{name}: loop over experts / grouped, {EXPERTS} experts, n = {n}, {which}"
            work = "in the loop every expert computes every token"
            yield _row(figure, ("loop", loop), ("grouped", grouped), work, 3.0, n, repeats, threads)
        if not find_spec("transformers"):
            note = "transformers is not installed: pip install 'attnlab[peers]'"
            yield Row(f"Hugging Face / grouped, {which}", None, at_least=1.0, note=note)
            continue
        mine = ours("switch")
        figure = f"Hugging Face's Switch / grouped, {EXPERTS} experts, n = {n}, {which}"
        work = "the same output, one expert for each token; ours has biases, which are zero"
        switch = ("Hugging Face", hugging_face_switch(mine))
        yield _row(figure, switch, ("grouped", mine), work, 1.0, n, repeats, threads)
        for how in ("eager", "grouped_mm"):
            figure = (
                f"Hugging Face's Mixtral ({how}) / grouped, {EXPERTS} experts, n = {n}, {which}"
            )
            work = "two experts for each token, of as many FLOPs: three matrices beside two"
            mixtral = ("Hugging Face", hugging_face_mixtral(how))
            yield _row(figure, mixtral, ("grouped", ours("gshard")), work, 1.0, n, repeats, threads)


def ours(name: str, form: str = "grouped") -> Routed:
    """A layer without a limit, so that it computes what Hugging Face's block computes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = catalog.build(name, dim=DIM, hidden=HIDDEN, experts=EXPERTS, form=form, **FREE)
    assert isinstance(layer, Routed)
    return layer.eval()


def hugging_face_switch(layer: Routed) -> nn.Module:
    """Hugging Face's block with the weights of ``layer``, and room for every token."""
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        SwitchTransformersSparseMLP,
    )

    config = SwitchTransformersConfig(
        d_model=DIM, d_ff=HIDDEN, num_experts=EXPERTS, expert_capacity=2**20,
        dense_act_fn="gelu", dropout_rate=0.0,
    )  # fmt: skip
    block = SwitchTransformersSparseMLP(config).eval()
    weights = {"router.classifier.weight": layer.router.weight}
    for e in range(EXPERTS):
        weights[f"experts.expert_{e}.wi.weight"] = layer.expand.weight[e]
        weights[f"experts.expert_{e}.wo.weight"] = layer.contract.weight[e]
    block.load_state_dict(weights)
    return block


def hugging_face_mixtral(how: str) -> nn.Module:
    """Hugging Face's block, by one of its two ways to compute."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(
        hidden_size=DIM, intermediate_size=2 * HIDDEN // 3, num_local_experts=EXPERTS
    )
    config._experts_implementation = how
    block = MixtralSparseMoeBlock(config).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for weight in block.parameters():
            weight.normal_(std=DIM**-0.5)
    return block


def _row(
    figure: str, over: tuple[str, nn.Module], under: tuple[str, nn.Module], work: str,
    at_least: float, n: int, repeats: int, threads: int,
) -> Row:  # fmt: skip
    x = torch.randn(1, n, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    backward = figure.endswith("backward")
    calls = {name: partial(_pass, layer, x, backward) for name, layer in (over, under)}
    timed = compare(calls, repeats=repeats, warmup=1, threads=threads)
    return ratio(figure, *timed, work=work, at_least=at_least)


def _pass(layer: nn.Module, x: Tensor, backward: bool) -> None:
    if not backward:
        with torch.no_grad():
            layer(x)
        return
    torch.autograd.grad(layer(x).sum(), (x, *layer.parameters()))
