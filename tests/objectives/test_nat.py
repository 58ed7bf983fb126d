"""All words at once: what the decoder sees, what is lost, and the head for the length."""

import math

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.nat import conditional_total_correlation as C
from attnlab.objectives.parallel import LengthHead
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, B, N, M = 13, 3, 5, 7


def pairs(lengths: list[int] | None = None) -> Batch:
    torch.manual_seed(1)
    targets, source = torch.randint(VOCAB, (B, N + 1)), torch.randint(VOCAB, (B, M))
    real = torch.arange(N) < torch.tensor(lengths or [N] * B)[:, None]
    return Batch(targets[:, :-1], targets[:, 1:].masked_fill(~real, UNSCORED), real, source)


def model(**options: object):
    torch.manual_seed(2)
    given = {"dim": 12, "heads": 2, "layers": 2, "max_len": M, "kind": "encoder_decoder"}
    return attnlab.TinyTransformer(VOCAB + 1, **{**given, **options}).double()


def test_a_hand_made_example() -> None:
    with record() as notes:
        found = attnlab.build("nat", vocab=VOCAB).prepare(pairs([5, 2, 0]))
    assert (found.inputs == VOCAB).all()
    assert torch.equal(found.targets, pairs([5, 2, 0]).targets)
    assert found.padding.sum(1).tolist() == [5, 2, 1]  # a decoder reads at least one place
    assert found.structure.allowed.all()
    assert notes.last("scored").sum(1).tolist() == [5, 2, 0]


def test_the_decoder_sees_both_sides_and_the_source_but_no_word_of_the_target() -> None:
    made, objective, batch = model(), attnlab.build("nat", vocab=VOCAB), pairs()
    logits = objective.answers(made, objective.prepare(batch))
    other = Batch(batch.inputs, batch.targets.flip(1), batch.padding, batch.source)
    torch.testing.assert_close(objective.answers(made, objective.prepare(other)), logits)
    longer = pairs([5, 4, 5])  # one mask less in a row changes its first place
    changed = objective.answers(made, objective.prepare(longer))
    assert not torch.allclose(changed[1, 0], logits[1, 0])
    torch.testing.assert_close(changed[0], logits[0])


@pytest.mark.parametrize(
    ("sentences", "p", "expected"),
    [
        ([[0, 0], [1, 1]], [0.5, 0.5], math.log(2)),  # two translations of two words
        ([[0, 0], [0, 1], [1, 0], [1, 1]], [0.25] * 4, 0),  # words do not depend on each other
        ([[0, 1], [0, 2]], [0.5, 0.5], 0),  # one word is always the same
        ([[0, 0, 0], [1, 1, 1]], [0.25, 0.75], 2 * (0.25 * math.log(4) + 0.75 * math.log(4 / 3))),
        ([[4, 2, 4]], [1.0], 0),  # distilled: one target
        ([[0, 0], [1, 1], [0, 0]], [0.25, 0.5, 0.25], math.log(2)),  # given in parts
    ],
)  # fmt: skip
def test_what_is_lost_in_nats(sentences, p, expected) -> None:
    assert C(torch.tensor(sentences), torch.tensor(p)) == pytest.approx(expected, abs=1e-6)


def test_one_shown_word_of_two_dialects_tells_all() -> None:
    both, p = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([0.5, 0.5])
    for place in range(3):
        assert C(both, p, torch.arange(3) == place) == pytest.approx(0, abs=1e-12)
    assert C(both, p, torch.zeros(3, dtype=torch.bool)) == pytest.approx(2 * math.log(2))
    assert C(both, p, torch.ones(3, dtype=torch.bool)) == 0


def test_it_is_the_divergence_at_the_marginals_and_no_product_comes_nearer() -> None:
    torch.manual_seed(3)
    p = torch.rand(2, 3, dtype=torch.float64)
    p /= p.sum()
    sentences = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    product = p.sum(1, keepdim=True) * p.sum(0)
    least = (p * (p / product).log()).sum()
    assert C(sentences, p.flatten()) == pytest.approx(float(least))
    for _ in range(50):
        a, b = torch.rand(2, 1, dtype=torch.float64), torch.rand(1, 3, dtype=torch.float64)
        other = a / a.sum() * b / b.sum()
        assert (p * (p / other).log()).sum() > least


@pytest.mark.parametrize("name", ["nat", "cmlm"])
def test_the_length_is_learned_beside_the_words(name: str) -> None:
    made = model()
    objective = attnlab.build(name, vocab=VOCAB, length=0.5)
    with pytest.raises(ValueError, match=r"call objective\.fitted\(model\) first"):
        objective(made, pairs())
    objective.fitted(made)
    head = objective.double().head
    objective.fitted(made)
    assert objective.head is head
    torch.nn.init.zeros_(head.linear.weight)
    torch.nn.init.zeros_(head.linear.bias)
    asked = objective.prepare(pairs([5, 2, 0]), torch.Generator().manual_seed(0))
    answers = objective.answers(made, asked)
    assert objective.lengths(asked).tolist() == [5, 2, UNSCORED]
    words = attnlab.build(name, vocab=VOCAB)
    alone = words.loss(words.answers(made, asked), asked)
    both = objective.loss(answers, asked)
    torch.testing.assert_close(both - alone, torch.tensor(0.5 * 2 * math.log(M + 1)).double())
    assert objective.right(answers, asked) == words.right(answers.tokens, asked)


def test_fit_learns_by_it() -> None:
    dialects = task("two_dialects", words=4, coin="source")
    torch.manual_seed(0)
    objective = attnlab.build("nat", vocab=dialects.vocab, length=0.1)
    made = attnlab.TinyTransformer(**model_options(dialects, objective), dim=16, heads=2, layers=1)
    assert made.vocab == dialects.vocab + 1
    before = evaluate(made, dialects, objective=objective, batches=1).loss
    more = {"batch_size": 16, "learning_rate": 1e-2, "progress": False}
    fit(made, dialects, 30, objective=objective, **more)
    assert evaluate(made, dialects, objective=objective, batches=1).loss < 0.9 * before


@pytest.mark.parametrize("name", ["nat", "cmlm", "ctc"])
def test_what_cannot_be_asked_is_refused_in_a_sentence(name: str) -> None:
    objective = attnlab.build(name, vocab=VOCAB)
    good = pairs()
    with pytest.raises(ValueError, match=f"{name} writes a target for a source, and this task has"):
        objective.prepare(Batch(good.inputs, good.targets))
    with pytest.raises(ValueError, match=rf"{name} writes a target \(b, n\), .* of shape \(3,\)"):
        objective.prepare(Batch(good.inputs, good.targets[:, 0], source=good.source))
    beyond = good.targets.clone()
    beyond[1, 2] = VOCAB
    with pytest.raises(ValueError, match="vocab=13, and a target of the task is 13"):
        objective.prepare(Batch(good.inputs, beyond, source=good.source))
    gap = good.targets.clone()
    gap[0, 1] = UNSCORED
    with pytest.raises(ValueError, match="scored target after one that is not scored"):
        objective.prepare(Batch(good.inputs, gap, source=good.source))
    made = attnlab.TinyTransformer(VOCAB + 1, dim=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="trains models of kind 'encoder_decoder'"):
        fit(made, task("copying", items=3), 1, objective=objective, progress=False)


@pytest.mark.parametrize("name", ["nat", "cmlm", "ctc"])
def test_a_model_is_told_which_token_sees_which_or_refused(name: str) -> None:
    objective = attnlab.build(name, vocab=VOCAB)
    asked = objective.prepare(pairs(), torch.Generator().manual_seed(0))
    logits = torch.randn(*asked.inputs.shape, VOCAB + 1)
    assert objective.answers(lambda tokens, **told: logits, asked) is logits
    with pytest.raises(ValueError, match="a function is not told; its forward should take"):
        objective.answers(lambda tokens, padding, source, source_padding: logits, asked)


def test_what_has_no_length_or_no_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match="length is the weight of a loss, 0 or more, got -1"):
        attnlab.build("nat", vocab=VOCAB, length=-1.0)
    with pytest.raises(ValueError, match="Linear has no encode, decode and logits"):
        attnlab.build("cmlm", vocab=VOCAB, length=0.1).fitted(torch.nn.Linear(2, 2))
    two = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"sentences should be \(k, n\)"):
        C(two, torch.ones(3) / 3)
    with pytest.raises(ValueError, match="sum to 1, got"):
        C(two, torch.tensor([0.5, 0.6]))
    with pytest.raises(ValueError, match=r"shown should be bool of shape \(2,\)"):
        C(two, torch.tensor([0.5, 0.5]), torch.tensor([1, 0]))


def test_the_length_is_read_from_the_mean_over_real_vectors() -> None:
    head = LengthHead(4, 9).double()
    memory = torch.randn(2, 5, 4, dtype=torch.float64)
    real = torch.tensor([[True] * 5, [True, True, False, False, False]])
    found = head(memory, real)
    torch.testing.assert_close(found[0], head.linear(memory[0].mean(0)))
    torch.testing.assert_close(found[1], head.linear(memory[1, :2].mean(0)))
    torch.testing.assert_close(found[:1], head(memory[:1], None))
    assert found.shape == (2, 10)
