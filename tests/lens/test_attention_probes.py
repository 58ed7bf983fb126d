"""Probes of attention alone: planted heads are found, and controls stay at what they should."""

import pytest
import torch

from attnlab.lens.attention_probes import AttentionProbe, asked_of, attention_probe
from attnlab.lens.relations import relation

N = 12


def planted(seed: int) -> tuple[dict[str, torch.Tensor], list[list[tuple[int, int]]]]:
    """Two pairs of four places in each of 40 texts; head 2 of the first layer attends from each
    partner to its token, all other weights are random."""
    made = torch.Generator().manual_seed(seed)
    layers = torch.rand(2, 40, 3, N, N, generator=made).softmax(-1)
    pairs = []
    for row in range(40):
        a, b, c, d = torch.randperm(N, generator=made)[:4].tolist()
        pairs.append([(a, b), (c, d)])
        for token, partner in pairs[-1]:
            layers[0, row, 2, partner] = 0.3 / (N - 1)
            layers[0, row, 2, partner, token] = 0.7
    return {"first": layers[0], "second": layers[1]}, pairs


def random_heads(seed: int) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return {name: torch.rand(40, 3, N, N, generator=made).softmax(-1) for name in ("a", "b")}


def test_it_finds_what_was_planted_and_says_in_which_head() -> None:
    probe = attention_probe(*planted(0))
    assert probe.right(*planted(1)) == 1, "on texts that it has not seen"
    best = probe.rows()[0]
    assert (best["layer"], best["head"], best["direction"]) == (0, 2, "transposed")
    assert best["weight"] > 3 * abs(probe.rows()[1]["weight"])


def test_two_heads_that_hold_half_each_are_added_up() -> None:
    seen, pairs = planted(0)
    held = seen["first"][:, 2:].clone()
    first, second = held.clone(), held.clone()
    first[: len(held) // 2], second[len(held) // 2 :] = 1 / N, 1 / N
    halves = {"a": torch.cat([first, second], dim=1)}
    single = relation(halves, pairs)
    assert single.right(*single.best) < 0.7
    probe = attention_probe(halves, pairs)
    assert probe.right(halves, pairs) == 1
    assert {(row["head"], row["direction"]) for row in probe.rows()[:2]} == {
        (0, "transposed"), (1, "transposed"),
    }  # fmt: skip


def test_on_random_weights_it_guesses() -> None:
    _, pairs = planted(0)
    _, others = planted(1)
    right = attention_probe(random_heads(0), pairs).right(random_heads(1), others)
    chance = 1 / (N - 1)
    count = sum(map(len, others))
    assert right < chance + 4 * (chance / count) ** 0.5
    assert right < 0.3


def test_probabilities_are_those_of_the_equation() -> None:
    seen, pairs = random_heads(3), [[(2, 5)], *[[]] * 39]
    probe = AttentionProbe([(layer, head) for layer in range(2) for head in range(3)], dim=2)
    made = torch.Generator().manual_seed(0)
    for parameter in probe.parameters():
        parameter.data = torch.randn(parameter.shape, generator=made, dtype=torch.float64)
    vectors = torch.randn(40, N, 2, generator=made).double()
    found = probe(asked_of(seen, pairs, vectors=vectors))[0].exp()
    maps = torch.cat([*seen.values()], dim=1)[0].double()
    scores = torch.full((N,), -torch.inf, dtype=torch.float64)
    for i in range(N):
        if i == 2:
            continue
        scores[i] = 0
        for k in range(6):
            for half, a in ((k, maps[k, i, 2]), (6 + k, maps[k, 2, i])):
                own = probe.weight[half] + probe.of_partner[half] @ vectors[0, i]
                scores[i] += (own + probe.of_token[half] @ vectors[0, 2]).detach() * a
    torch.testing.assert_close(found, scores.softmax(0))
    assert found[2] == 0, "no token is its own partner"


def test_words_let_a_head_count_for_some_words_only() -> None:
    seen, pairs = planted(0)
    right = seen["first"][:, 2:]
    wrong = right.roll(1, 2)
    kind = torch.zeros(40, N, 2)
    kind[:20, :, 0], kind[20:, :, 1] = 1, 1
    halves = {"a": torch.cat([torch.cat([right[:20], wrong[20:]]),
                              torch.cat([wrong[:20], right[20:]])], dim=1)}  # fmt: skip
    plain = attention_probe(halves, pairs).right(halves, pairs)
    probe = attention_probe(halves, pairs, vectors=kind)
    assert plain < 0.8
    assert probe.right(halves, pairs, vectors=kind) > 0.95


def test_padding_is_no_partner() -> None:
    seen, pairs = random_heads(0), [[(0, 3)], *[[]] * 39]
    padding = torch.ones(40, N, dtype=torch.bool)
    padding[:, 6:] = False
    log = attention_probe(seen, pairs, padding=padding, steps=1)(
        asked_of(seen, pairs, padding=padding)
    )
    assert (log[0] > -torch.inf).sum() == 5
    padding[:, 3] = False
    with pytest.raises(ValueError, match="a partner is padding"):
        asked_of(seen, pairs, padding=padding)


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    seen, pairs = planted(0)
    probe = attention_probe(seen, pairs, steps=1)
    for call, words in (
        (lambda: probe.right({"a": seen["first"]}, pairs), "weighs 6 heads, and these have 3"),
        (lambda: probe.right(seen, pairs, vectors=torch.ones(40, N, 2)), "words of 0 numbers"),
        (lambda: attention_probe(seen, pairs, vectors=torch.ones(3, N, 2)), "vectors should be"),
        (lambda: attention_probe(seen, [[]] * 40), "there is no pair in any sequence"),
        (lambda: attention_probe(seen, "ab"), "pairs should be a list"),
        (lambda: attention_probe(seen, pairs, steps=0), "steps should be at least 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            call()
