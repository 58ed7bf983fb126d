"""The experiment `write_erase_read`, small: its rules by a loop and by the page; what is scored."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.core.convolution import short_convolution
from attnlab.experiments import write_erase_read as experiment
from attnlab.experiments.write_erase_read import CELLS, MAIN, RULES, TASKS, Memory, Rule
from attnlab.mechanisms.recurrence.deltanet import DeltaNet, DeltaNetOptions
from attnlab.tasks import UNSCORED
from attnlab.tasks.group_words import GroupWords

STATES = [name for name, rule in RULES.items() if rule.read == "state"]


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def by_a_loop(layer: Memory, x: torch.Tensor) -> torch.Tensor:
    """The reads of all heads, token by token, with transitions as whole matrices."""
    rule, h, d = layer.rule, layer.heads, layer.d
    q, k, v = short_convolution(layer.into(x), layer.taps, None).split(layer.widths, dim=-1)
    q, k, v = unit(F.silu(q.unflatten(-1, (h, d)))), F.silu(k), F.silu(v)
    out = torch.zeros(*x.shape[:2], h, v.shape[-1] // h // rule.times).to(x)
    for batch in range(len(x)):
        for head in range(h):
            S = out.new_zeros(d, out.shape[-1])
            for t in range(x.shape[1]):
                a = torch.ones(d).to(x)
                if rule.decay == "constant":
                    a = a * (1 - 2.0 ** (-5 - head))
                elif rule.decay != "none":
                    rate = F.softplus(layer.decays(x[batch, t])).view(h, -1)[head]
                    a = a * torch.exp(-layer.log_A[head].exp() * rate)
                S = torch.diag(a) @ S
                for m in range(rule.times):
                    key = unit(k[batch, t].view(rule.times, h, d)[m, head])
                    value = v[batch, t].view(rule.times, h, -1)[m, head]
                    b = x.new_ones(())
                    if rule.erase:
                        steps = layer.steps(x[batch, t]).view(rule.times, h)
                        b = rule.erase * steps[m, head].sigmoid()
                        S = (torch.eye(d).to(x) - b * torch.outer(key, key)) @ S
                    S = S + b * torch.outer(key, value)
                out[batch, t, head] = q[batch, t, head] @ S / d**0.5
    return out.flatten(2)


@pytest.mark.parametrize("name", STATES)
def test_each_rule_is_its_transition(name: str) -> None:
    torch.manual_seed(5)
    layer = Memory(6, 2, RULES[name], head_dim=5).double()
    layer.out.gain.data.uniform_(0.5, 2)
    x = torch.randn(2, 7, 6).double()
    torch.testing.assert_close(layer(x), layer.out(by_a_loop(layer, x), x))


@pytest.mark.parametrize("negative", [False, True])
def test_delta_is_the_layer_of_the_catalogue(negative: bool) -> None:
    torch.manual_seed(6)
    page = DeltaNet(6, 2, options=DeltaNetOptions(negative=negative)).double()
    mine = Memory(6, 2, RULES["delta to 2" if negative else "delta"]).double()
    mine.load_state_dict(
        {
            "into.weight": page.into.weight,
            "taps": page.taps,
            "steps.weight": page.steps.weight,
            "out.gain": page.heads.output.gain,
            "out.project.weight": page.heads.output.project.weight,
        }
    )
    x = torch.randn(3, 11, 6).double()
    torch.testing.assert_close(mine(x), page(x))


@pytest.mark.parametrize("name", RULES)
def test_no_layer_reads_the_future(name: str) -> None:
    torch.manual_seed(7)
    layer = Memory(6, 2, RULES[name])
    x = torch.randn(2, 13, 6)
    changed = torch.cat((x[:, :8], torch.randn(2, 5, 6)), dim=1)
    torch.testing.assert_close(layer(x)[:, :8], layer(changed)[:, :8])
    assert not torch.allclose(layer(x)[:, 8:], layer(changed)[:, 8:])


def test_without_memory_four_tokens_are_read() -> None:
    layer = Memory(6, 2, Rule(read="near"))
    x = torch.randn(2, 13, 6)
    changed = torch.cat((torch.randn(2, 5, 6), x[:, 5:]), dim=1)
    found = (layer(x) != layer(changed)).any(-1).any(0)
    assert found.tolist() == [n < 5 + 3 for n in range(13)]


@pytest.mark.parametrize("name", ["attention of 8 tokens", "hybrid of 8 tokens"])
def test_a_window_is_of_the_last_eight_tokens(name: str) -> None:
    torch.manual_seed(8)
    layer = Memory(6, 2, RULES[name])
    x = torch.randn(2, 19, 6)
    changed = torch.cat((torch.randn(2, 1, 6), x[:, 1:]), dim=1)
    read, other = (layer._read(y, *parts(layer, y))[:, -1] for y in (x, changed))
    found = (read != other).any(-1).any(0)
    assert found.tolist() == [n < 8 + 3 for n in range(19)]  # and the convolution's three


def test_steps_are_cut_at_the_limit() -> None:
    """A trained layer's steps above 1 become 1, the others stay."""
    torch.manual_seed(10)
    layer = Memory(6, 2, RULES["delta to 2"])
    x = torch.randn(2, 11, 6)
    steps = layer._steps(x)
    layer.rule = layer.rule._replace(limit=1)
    cut = layer._steps(x)
    assert (steps > 1).any()
    assert (steps < 1).any()
    assert torch.equal(cut, steps.minimum(torch.ones(())))


@pytest.mark.parametrize("task", experiment.UNTOLD)
def test_the_answers_of_others_have_other_contents(task: str) -> None:
    """Sequences and places of the answers are those of the task."""
    own = TASKS[task].batch("train", 32, seed=3)
    others = experiment.OthersAnswers(TASKS[task]).batch("train", 32, seed=3)
    assert torch.equal(others.inputs, own.inputs)
    assert torch.equal(others.targets[1:], own.targets[:-1])
    assert torch.equal(others.targets[0], own.targets[-1])
    assert torch.equal(others.targets == UNSCORED, own.targets == UNSCORED)
    assert (others.targets != own.targets).any()


def parts(layer: Memory, x: torch.Tensor) -> list[torch.Tensor]:
    mixed = short_convolution(layer.into(x), layer.taps, None)
    q, k, v = (layer._split(part, 1) for part in mixed.split(layer.widths, dim=-1))
    return [q, k, F.silu(v)]


def test_the_hybrid_has_one_head_of_each() -> None:
    torch.manual_seed(9)
    hybrid, state, attention = (
        Memory(6, 2, RULES[name]) for name in ("hybrid", "delta to 2", "attention")
    )
    for layer in (state, attention):
        layer.into, layer.taps = hybrid.into, hybrid.taps
    state.steps.weight.data[:1] = hybrid.steps.weight.data
    x = torch.randn(2, 11, 6)
    read, first, second = (each._read(x, *parts(each, x)) for each in (hybrid, state, attention))
    torch.testing.assert_close(read, torch.stack((first[:, 0], second[:, 1]), dim=1))


class Says(nn.Module):
    """Scores that choose what ``answer`` gives for each position."""

    def __init__(self, answer, vocab: int) -> None:
        super().__init__()
        self.answer, self.vocab = answer, vocab

    def forward(self, tokens):
        return F.one_hot(self.answer(tokens), self.vocab).float()


def test_the_last_answer_is_scored() -> None:
    task = TASKS["parity"]
    assert experiment.last_right(Says(lambda x: x.cumsum(1) % 2, 2), task) == 100
    assert experiment.last_right(Says(lambda x: (x.cumsum(1) + 1) % 2, 2), task) == 0
    first_half = Says(lambda x: x.cumsum(1) % 2 * (torch.arange(16) < 8), 2)
    assert 40 < experiment.last_right(first_half, task) < 60


@pytest.mark.parametrize("task", TASKS)
def test_who_gives_the_most_frequent_answer_knows_little(task: str) -> None:
    chance = 100 / (TASKS[task].vocab if isinstance(TASKS[task], GroupWords) else 16)
    assert chance - 2 < MAIN.baselines[f"{task}; the most frequent answer"](False) < chance + 15


def test_states_and_parameters_are_equal_but_for_the_gates() -> None:
    sizes = {}
    for name in STATES:
        layer = Memory(32, 2, RULES[name])
        sizes[name] = sum(each.numel() for each in layer.parameters())
        assert layer.d * layer.out.gain.numel() * layer.heads == 512
    plain = sizes["sum"]
    assert sizes["constant decay"] == plain
    assert sizes["delta"] == sizes["delta to 2"] == plain + 32 * 2
    assert sizes["decay by head"] == plain + 32 * 2 + 2 + 2
    beside = {name: sum(each.numel() for each in Memory(32, 2, RULES[name]).parameters())
              for name in RULES}  # fmt: skip
    assert beside["no memory"] == beside["attention"] == beside["attention of 8 tokens"] == plain
    assert beside["hybrid"] == beside["hybrid of 8 tokens"] == plain + 32
    assert 2 * 8 * (16 + 16) == 16 * 16 + 8 * (16 + 16) == 512  # a window's keys and values


@pytest.mark.parametrize("head_dim", [4, 16])
@pytest.mark.parametrize("tokens", [5, 13])
@pytest.mark.parametrize("name", [name for name in RULES if name != "no memory"])
def test_numbers_that_are_kept_are_those_of_the_tensors(
    name: str, tokens: int, head_dim: int, monkeypatch
) -> None:
    """States that are advanced, and keys and values that the last token attends to."""
    kept = []

    def advance(q, k, v, S, chunk, **gates):
        kept.append(S[0].numel())
        return advanced(q, k, v, S, chunk, **gates)

    def attend(q, k, v, mask=None, is_causal=False):
        seen = tokens if mask is None else int(mask[-1].sum())
        kept.append(sum(x[0, :, :seen].numel() for x in (k, v)))
        return attended(q, k, v, mask, is_causal=is_causal)

    advanced, attended = experiment.chunks.advance, F.scaled_dot_product_attention
    monkeypatch.setattr(experiment.chunks, "advance", advance)
    monkeypatch.setattr(experiment.F, "scaled_dot_product_attention", attend)
    layer = Memory(experiment.DIM, experiment.HEADS, RULES[name], head_dim=head_dim)
    layer(torch.randn(3, tokens, experiment.DIM))
    assert sum(kept) == experiment.numbers_kept(name, tokens, head_dim)


def test_numbers_that_the_other_layers_keep() -> None:
    lstm = experiment._layer("lstm", {})(experiment.DIM, experiment.HEADS, True)
    _, state = lstm.step(torch.randn(1, 1, experiment.DIM))
    assert sum(each.numel() for each in state) == experiment.numbers_kept("lstm", 24)
    assert experiment.numbers_kept("no memory", 24) == 0


def test_a_random_one_of_two_values_is_right_in_53_per_cent() -> None:
    batch = TASKS["overwriting"].batch("validation", 512, seed=0)
    first, second = (batch.inputs[:, start : start + 16].view(-1, 8, 2) for start in (0, 16))
    right = torch.zeros(512, 8)
    for key in range(8):
        old, new = (pairs[..., 1][pairs[..., 0] == key] for pairs in (first, second))
        right[:, key] = (1 + (old == new).float()) / 2
    assert 100 * right.mean() == pytest.approx(53.1, abs=1)


def test_the_better_rate_is_named_first() -> None:
    rows = experiment_rows()
    for task, arms in CELLS.items():
        for arm, rates in arms.items():
            name = f"{task}; {arm}; {{:g}}; loss on other sequences, tried once"
            losses = [rows[name.format(rate)] for rate in rates]
            assert losses[0] == min(losses)
            if len(rates) == 1:  # right at once
                assert rates == experiment.FAST
                assert rows[f"{task}; {arm}; right; seed 0"] >= 99.5


def experiment_rows():
    from attnlab.experiments import stored

    return stored("27_write_erase_read.json", "write_erase_read")
