"""Known where: a planted label is found in its layer, and where nothing is, scores are controls."""

import pytest
import torch

from attnlab.lens.edge_probes import Examples
from attnlab.lens.known_where import known_where
from attnlab.lens.probes import layer_states
from attnlab.models.tiny import TinyTransformer

LAYERS, TEXTS, N, DIM, FROM = 3, 300, 5, 7, 2
GENERATOR = torch.Generator


def noise(seed: int) -> torch.Tensor:
    return torch.randn(LAYERS, TEXTS, N, DIM, generator=GENERATOR().manual_seed(seed))


def planted(seed: int) -> tuple[torch.Tensor, Examples]:
    """Noise in which layer 2 holds the label in one coordinate of one token, and no other does."""
    states, made = noise(seed), GENERATOR().manual_seed(100 + seed)
    at, label = (torch.randint(high, (TEXTS,), generator=made) for high in (N, 2))
    text = torch.arange(TEXTS)
    states[FROM, text, at, 3] = 4.0 * (2 * label - 1)
    return states, Examples(text, torch.stack([at, at + 1], -1)[:, None], label)


def test_a_planted_label_is_found_from_its_layer_on_and_in_no_control() -> None:
    (states, examples), (new, asked) = planted(0), planted(1)
    known = known_where(states, examples, new, asked, untrained=(noise(2), noise(3)))
    assert known.trained.right[FROM] > 0.97
    assert known.selectivity.argmax() == FROM
    assert known.selectivity[FROM] > 0.3
    assert (known.selectivity[:FROM].abs() < 0.15).all(), "layers below hold no answer"
    assert known.trained.last.shares.argmax() == FROM
    assert abs(known.trained.expected_layer - FROM) < 0.3
    assert (known.random.right - 0.5).abs().max() < 0.15


def test_shuffled_labels_are_learned_from_and_the_right_ones_are_asked() -> None:
    (states, examples), (new, asked) = planted(4), planted(5)
    known = known_where(states, examples, new, asked, untrained=(states, new), steps=60)
    assert torch.equal(known.random.right, known.trained.right), "an encoder like the trained one"
    assert (known.shuffled.right - 0.5).abs().max() < 0.3
    assert known.shuffled.right[FROM] < known.trained.right[FROM] - 0.2
    assert torch.equal(known.control, known.random.right.maximum(known.shuffled.right))
    assert known.selectivity.max() <= 0


def test_on_random_weights_the_score_is_its_control() -> None:
    """Two models that nobody has trained: the scores differ by the chance of 300 answers."""
    tokens = [torch.randint(11, (TEXTS, N), generator=GENERATOR().manual_seed(s)) for s in (0, 1)]
    sides = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = TinyTransformer(11, kind="token_classifier", classes=2, dim=12, heads=2, layers=2)
        sides.append([layer_states(model, model.encode, tokens=each) for each in tokens])
    asked = []
    for each in tokens:  # is the token before this one an even number?
        place = torch.full((TEXTS,), 3)
        spans = torch.stack([place, place + 1], -1)[:, None]
        asked.append(Examples(torch.arange(TEXTS), spans, each[:, 2] % 2))
    known = known_where(sides[0][0], asked[0], sides[0][1], asked[1], untrained=tuple(sides[1]))  # type: ignore[arg-type]
    assert known.selectivity.abs().max() < 0.15


def test_the_controls_are_of_the_same_texts() -> None:
    states, examples = planted(0)
    with pytest.raises(ValueError, match=r"states of the same texts .* got \(2, 300, 5, 7\) and"):
        known_where(states, examples, states, examples, untrained=(states[:2], states))
