"""A small model replaces tokens, and the model finds them."""

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.electra import Electra, ElectraOptions
from attnlab.objectives.hiding import sampled
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB = 23
TOKENS = torch.randint(VOCAB, (7, 40), generator=torch.Generator().manual_seed(0))
BATCH = Batch(TOKENS, TOKENS)


class Fixed(nn.Module):
    """The same logits at every place."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, tokens, padding=None):
        return self.logits.expand(*tokens.shape, -1)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sure_of(token: int) -> Fixed:
    return Fixed(*(60.0 * (i == token) for i in range(VOCAB)))


def built(small=None, **options) -> Electra:
    return attnlab.build("electra", vocab=VOCAB, small=small or Fixed(*[0.0] * VOCAB), **options)


def test_the_worked_example() -> None:
    """Four tokens, one of them hidden; the generator gives the text's own 1/4."""
    text = torch.tensor([[0, 1, 2, 1]])
    small = Fixed(math.log(3), 0.0, -math.inf)  # 3/4, 1/4, 0
    objective = attnlab.build("electra", vocab=3, small=small, rate=0.25)
    for seed in range(40):
        asked = objective.prepare(Batch(text, text), draws(seed))
        answers = objective.answers(Fixed(math.log(3)), asked)
        hidden = asked.kept["hidden"]
        assert hidden.sum() == 1
        if text[hidden] != 1:
            continue
        # The generator: log 4, times 4 tokens of which 1 is hidden. The discriminator says 3/4
        # replaced: log 4/3 where it was, log 4 at the text's own tokens.
        replaced = bool(answers.replaced.any())
        found = 3 * math.log(4) + (math.log(4 / 3) if replaced else math.log(4))
        loss = objective.loss(answers, asked)
        assert loss.item() == pytest.approx(4 * math.log(4) + 50 * found, rel=1e-6)
        assert int(objective.right(answers, asked)) == int(replaced)
        return
    raise AssertionError("no draw hid token 1")


def test_a_correct_sample_is_not_replaced() -> None:
    text = torch.full((3, 20), 5)
    right, wrong = (built(sure_of(token)) for token in (5, 6))
    for objective, expected in ((right, 0), (wrong, 9)):
        asked = objective.prepare(Batch(text, text), draws())
        replaced = objective.answers(Fixed(0.0), asked).replaced
        assert replaced.sum() == expected  # 3 of 20 in each of 3 rows
        assert torch.equal(replaced, asked.kept["hidden"] & bool(expected))


def test_a_discriminator_that_says_nothing_loses_fifty_logarithms_of_two() -> None:
    objective = built(sure_of(5))
    text = torch.full((3, 20), 5)  # the generator is right, so that its own loss is 0
    loss, count = objective(Fixed(0.0), Batch(text, text), draws())
    assert count == 60
    assert loss.item() / count == pytest.approx(50 * math.log(2), rel=1e-6)


def test_no_gradient_goes_through_the_draw() -> None:
    """That of the generator is that of its own loss, whatever the discriminator says."""
    model = nn.Sequential(nn.Embedding(VOCAB + 1, 1))
    found = []
    for weight in (0.0, 50.0):
        objective = built(weight=weight)
        asked = objective.prepare(BATCH, draws())

        def discriminator(tokens, padding=None):
            return model(tokens)

        loss = objective.loss(objective.answers(discriminator, asked), asked)
        loss.backward()
        found.append(objective.small.logits.grad)
    assert found[0].abs().sum() > 0
    torch.testing.assert_close(found[0], found[1])
    assert model[0].weight.grad.abs().sum() > 0


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().expand(20_000, 4)
    drawn = sampled(logits, torch.rand(20_000, generator=draws(), dtype=torch.float64))
    shares = drawn.bincount(minlength=4) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.02, rtol=0)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, 3)
    assert sampled(logits, torch.tensor([0.0, 0.5, 1 - 1e-12], dtype=torch.float64)).tolist() == [
        1,
        1,
        1,
    ]


def test_the_hidden_tokens_alone_change_and_padding_never() -> None:
    padding = torch.arange(40) < torch.tensor([40, 30, 20, 10, 5, 1, 0])[:, None]
    objective = built(sure_of(5), rate=0.5)
    asked = objective.prepare(Batch(BATCH.inputs, BATCH.targets, padding), draws())
    hidden = asked.kept["hidden"]
    assert hidden.sum(-1).tolist() == [20, 15, 10, 5, 2, 1, 0]  # round(2.5) = 2, at least 1
    assert (asked.inputs == VOCAB).equal(hidden)
    assert not (hidden & ~padding).any()
    assert (asked.targets == UNSCORED).equal(~padding)
    replaced = objective.answers(Fixed(0.0), asked).replaced
    assert replaced.equal(hidden & (BATCH.inputs != 5))


def test_both_losses_are_means_of_the_whole_batch() -> None:
    """The generator's is divided by the hidden places of all rows, in whatever parts."""
    objective = built(Fixed(math.log(2), 0.0, *[-math.inf] * 20, 0.0), weight=0.0, rate=0.2)
    text = torch.tensor([0, 1])[:, None].expand(2, 10)
    padding = torch.arange(10) < torch.tensor([[10], [4]])
    asked = objective.prepare(Batch(text, text, padding), draws())
    losses = [objective.loss(objective.answers(Fixed(0.0), x), x) for x in (asked[:1], asked[1:])]
    two_of_three = (2 * math.log(2) + math.log(4)) / 3
    assert sum(losses).item() / 14 == pytest.approx(two_of_three, rel=1e-6)


def released(tokens, places, drawn):
    """What the authors' code writes: sums at each place, divided by how many there are."""
    sums, count = torch.zeros(len(tokens)).long(), torch.zeros(len(tokens)).long()
    sums.index_add_(0, places, drawn)
    count.index_add_(0, places, torch.ones_like(places))
    return torch.where(count > 0, sums // count.clamp(min=1), tokens)


def test_places_drawn_with_replacement_are_fewer_and_averaged() -> None:
    """What the authors' code does; here every place is another."""
    tokens = torch.zeros(6).long()
    wrong = released(tokens, torch.tensor([1, 4, 4]), torch.tensor([10, 10, 20]))
    assert wrong.tolist() == [0, 10, 0, 0, 15, 0]  # nobody proposed 15
    with_replacement = torch.randint(128, (2000, 19), generator=draws())
    distinct = sum(len(row.unique()) for row in with_replacement) / 2000
    assert distinct == pytest.approx(128 * (1 - (1 - 1 / 128) ** 19), abs=0.1)
    assert distinct == pytest.approx(17.7, abs=0.1)
    text = torch.zeros(50, 128).long()
    asked = built().prepare(Batch(text, text), draws())
    assert (asked.kept["hidden"].sum(-1) == 19).all()


@pytest.mark.parametrize(("rate", "hidden"), [(0.0, 0), (1.0, 40)])
def test_nothing_or_everything_is_hidden(rate, hidden) -> None:
    objective = built(rate=rate)
    asked = objective.prepare(BATCH, draws())
    assert (asked.kept["hidden"].sum(-1) == hidden).all()
    loss = objective.loss(objective.answers(Fixed(0.0), asked), asked)
    expected = 50 * math.log(2) + math.log(VOCAB) * (hidden > 0)
    assert loss.item() / 280 == pytest.approx(expected, rel=1e-6)


def test_what_does_not_fit_is_a_sentence() -> None:
    asked = built().prepare(BATCH, draws())
    for call, words in (
        (lambda: ElectraOptions(weight=-1.0), "weight should be 0 or more, got -1.0"),
        (lambda: ElectraOptions(rate=1.5), "rate"),
        (lambda: attnlab.build("electra", vocab=5).prepare(BATCH), "built for vocab=5"),
        (lambda: Electra(VOCAB).answers(Fixed(0.0), asked), r"no generator yet: .*fitted\(model\)"),
        (lambda: Electra(VOCAB).fitted(Fixed(0.0)), "this Fixed has none; give a generator"),
        (lambda: built().answers(Fixed(0.0, 1.0), asked), "one number at each place"),
        (lambda: built(Fixed(0.0)).answers(Fixed(0.0), asked), r"logits \(b, n, 23\)"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="this batch is as the task gives it"):
        built().answers(Fixed(0.0), BATCH)


def test_fit_trains_both_models() -> None:
    problem = task("documentation", length=32)
    options = model_options(problem, "electra")
    assert (options["kind"], options["classes"], options["vocab"]) == ("token_classifier", 1, 257)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**options, dim=32, heads=4, layers=2, hidden=48)
    objective = attnlab.build("electra", vocab=256)
    history = fit(model, problem, 60, batch_size=16, objective=objective, progress=False)
    small = objective.small
    assert (small.dim, small.config["heads"], small.config["hidden"]) == (8, 1, 12)
    assert (small.vocab, small.config["classes"]) == (257, 256)
    first, last = history.rows[0]["loss"], history.rows[-1]["loss"]
    assert first == pytest.approx(50 * math.log(2) + math.log(256), rel=0.05)
    assert last < 0.7 * first
    assert evaluate(model, problem, objective=objective, batches=2).accuracy > 0.8
