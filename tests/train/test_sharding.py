"""A model in shares trains as a whole one does, whatever the way through its layers."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attnlab.train import fit
from attnlab.train.learner import Learner
from attnlab.train.sharding import check_shardable, noted_layers
from tests.train.test_learner import Headed
from tests.train.test_processes import launched

PROGRAM = """
import copy, gc, json
import attnlab
from accelerate import PartialState
from attnlab.tasks import task
from attnlab.train import sharding
from tests.train.test_learner import Headed
from tests.train.test_sharding import Changing

copying = task("copying", symbols=5, items=5)
made = []

class Kept(sharding.Shares):
    def __init__(self, *given):
        super().__init__(*given)
        made.append(self)

sharding.Shares = Kept
cases = {
    "plain": {}, "again": {"checkpoint": True}, "shared": {"depth": "shared"},
    "reversible": {"depth": "reversible"}, "objective": {}, "uneven": {"dim": 6},
    "changing": {},
}
found = {}
for name, options in cases.items():
    runs = []
    for sharded in (False, True):
        torch.manual_seed(4)
        model = attnlab.TinyTransformer(
            **copying.model_options(), **{"dim": 8, "layers": 2, "heads": 2, **options}
        )
        objectives = {"objective": Headed, "changing": Changing}
        asked = objectives[name](copying.vocab) if name in objectives else "next_token"
        films, before = [], [id(p) for p in model.parameters()]
        history = fit(
            model, copying, 3, batch_size=4, device="cpu", sharded=sharded, progress=False,
            objective=asked, evaluate_every=2,
            callbacks=[lambda state: films.append(copy.deepcopy(state.model).state_dict())],
        )
        assert before == [id(p) for p in model.parameters()]
        assert all(p.grad is None for p in model.parameters())
        rows = [{**row, "tokens_per_second": 0} for row in history.rows]
        ended = model.state_dict()
        own = [] if isinstance(asked, str) else [*asked.buffers(), *asked.parameters()]
        if name == "changing":
            own.append(torch.tensor(asked.changes))
        assert all(torch.equal(film, ended[n]) for n, film in dict(*films[-1:]).items())
        runs.append((rows, [*ended.values(), *own], getattr(asked, "steps", [])))
    (rows, ended, steps), (other, shared, also) = runs
    for one, two in zip(ended, shared, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert steps == also
    shares = made.pop()
    kinds = [type(part).__name__ for part in shares.learner.modules()]
    found[name] = {
        "rows": (rows, other),
        "apart": kinds.count("FSDPBlock"),
        "whole": sum(p.numel() for p in shares.learner.parameters()),
        "own": sum(p.to_local().numel() for p in shares.learner.parameters()),
    }
state = PartialState()
with open(f"{sys.argv[1]}/{state.process_index}.json", "w") as file:
    json.dump(found, file)
state.wait_for_everyone()
import os
os._exit(0)
"""


@pytest.mark.slow
def test_a_run_in_shares_is_the_run_of_whole_models(script, run, tmp_path):
    run([*launched("torchrun", script(PROGRAM)), str(tmp_path)])
    both = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for name, found in both[0].items():
        rows, other = found["rows"]
        for column in ("loss", "gradient_norm"):
            assert [row[column] for row in rows] == pytest.approx(
                [row[column] for row in other], rel=1e-5
            ), name
        assert rows[1]["validation_loss"] == pytest.approx(other[1]["validation_loss"], rel=1e-5)
        own = [each[name]["own"] for each in both]
        assert sum(own) == found["whole"]
        assert max(own) < 0.6 * found["whole"]
    # Layers are gathered one by one where the model calls them and nothing else has their matrices.
    apart = {name: found["apart"] for name, found in both[0].items()}
    assert apart == {
        "plain": 2, "again": 2, "shared": 1, "reversible": 0, "objective": 2, "uneven": 2,
        "changing": 2,
    }  # fmt: skip


class Changing(Headed):
    """After each step it changes parameters, one that is gathered with its layer and one that is
    not, one of its own, a buffer by another tensor in its place, and what it counts; and it uses
    all of them in the next loss."""

    def __init__(self, vocab: int) -> None:
        super().__init__(vocab)
        self.changes = 0

    def fitted(self, model: nn.Module) -> None:
        super().fitted(model)
        self.register_buffer("bias", torch.zeros(self.vocab))

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        model.embedding.weight.mul_(0.5)
        next(model.decoder.blocks[0].parameters()).add_(0.25)
        self.head.weight.mul_(1.5)
        self.bias = self.bias + torch.linspace(-step, step, self.vocab)
        self.changes += 2

    def answers(self, model, batch):
        return (1 + self.changes) * super().answers(model, batch) + self.bias


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("model", "count", "words"),
    [
        (nn.Linear(2, 3), 1, "this is the only one; start the script by torchrun"),
        (torch.compile(nn.Linear(2, 3), backend="eager"), 2, "this one is compiled as a whole"),
        (Scaled(), 2, "along their first axis, and 'gain' has none; make it one of shape"),
    ],
)
def test_what_cannot_be_divided(model, count, words):
    with pytest.raises(ValueError, match=words):
        check_shardable(model, nn.Identity(), SimpleNamespace(count=count))


def test_one_process_refuses_shares_before_the_model_is_touched(toy, successor, weights):
    model = toy()
    before = weights(model)
    with pytest.raises(ValueError, match="sharded=True divides a model among several processes"):
        fit(model, successor(), 2, sharded=True, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_a_layer_is_noted_once_a_call_if_it_is_gathered_alone(monkeypatch):
    """A block of shared depth stands in its list once for each of its turns; of layers of an
    objective, and of those that share a matrix, it is noted that they are used."""
    monkeypatch.setattr(torch.distributed.fsdp, "FSDPModule", nn.Linear)  # which ones are gathered
    block, whole, called, used = nn.Linear(3, 3), nn.LayerNorm(3), [], []
    model = nn.Module()
    model.blocks = nn.ModuleList([block, whole, block, nn.Identity()])
    learner = Learner(model, nn.Identity())
    with noted_layers(learner, SimpleNamespace(call=called.append, use=used.append)):
        for layer in model.blocks:
            layer(torch.zeros(2, 3))
    block(torch.zeros(2, 3))
    assert called == ["'blocks.0'", "'blocks.0'"]
    assert used == ["'blocks.1'"]
