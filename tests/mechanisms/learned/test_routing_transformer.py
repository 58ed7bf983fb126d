"""Routing: the equations pair by pair, its limit (R2), the leak of membership, and k-means."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.routing_transformer import (
    FORMS,
    RoutingAttention,
    RoutingOptions,
    leaky,
    moved,
)

B, H, N, D, E, K = 2, 3, 13, 7, 5, 4
REAL = torch.arange(N) < torch.tensor([[N], [9]])

by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
padded = pytest.mark.parametrize("padding", [None, REAL], ids=["whole", "padded"])
windows = pytest.mark.parametrize("window", [None, 2, 40])


def made(clusters: int = K, n: int = N) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    shapes = ((B, H, n, D), (B, H, n, D), (B, H, n, E), (H, clusters, D))
    q, k, v, centroids = (torch.randn(s, dtype=torch.float64) for s in shapes)
    return q, k, v, F.normalize(centroids, dim=-1)


def unit(x: Tensor) -> Tensor:
    """Layer norm by its definition."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def one_head(
    q: Tensor, k: Tensor, v: Tensor, centroids: Tensor, real: int, window: int | None
) -> Tensor:
    """Clusters one by one, tokens one by one: q, k (n, d) and v (n, e) of which ``real`` count."""
    outs: list[list[Tensor]] = [[] for _ in q]
    w = min(real, math.ceil(real / len(centroids)) if window is None else window)
    for mu in centroids:
        asking = sorted(range(real), key=lambda i: -float(mu @ q[i]))[:w]
        asked = sorted(range(real), key=lambda j: -float(mu @ k[j]))[:w]
        for i in asking:
            powers = [torch.exp(q[i] @ k[j] / math.sqrt(len(mu))) for j in asked]
            found = zip(powers, asked, strict=True)
            outs[i].append(sum(p * v[j] for p, j in found) / sum(powers))
    return torch.stack([sum(each) / len(each) if each else 0 * v[0] for each in outs])


def one_causal_head(
    q: Tensor, v: Tensor, centroids: Tensor, real: int, window: int | None
) -> Tensor:
    own = [int((centroids @ x).argmax()) for x in q]
    outs = []
    for i in range(real):
        back = math.ceil((i + 1) / len(centroids)) if window is None else window
        seen = [j for j in range(i + 1) if own[j] == own[i]][-back:]
        powers = [torch.exp(q[i] @ q[j] / math.sqrt(q.shape[1])) for j in seen]
        outs.append(sum(p * v[j] for p, j in zip(powers, seen, strict=True)) / sum(powers))
    return torch.stack([*outs, *(0 * v[0] for _ in range(len(q) - real))])


# ---- the equations


@windows
@padded
@by_form
def test_pair_by_pair(
    form: Callable[..., Tensor], padding: Tensor | None, window: int | None
) -> None:
    q, k, v, centroids = made()
    real = [N] * B if padding is None else padding.sum(-1).tolist()
    given = {"padding": padding, "options": RoutingOptions(clusters=K, window=window)}
    apart, shared = form(q, v, centroids, k=k, **given), form(q, v, centroids, **given)
    causal = form(q, v, centroids, causal=True, **given)
    q, k = unit(q), unit(k)
    for b in range(B):
        for h in range(H):
            of_head = (v[b, h], centroids[h], real[b], window)
            expected = one_head(q[b, h], k[b, h], *of_head)
            torch.testing.assert_close(apart[b, h], expected)
            torch.testing.assert_close(shared[b, h], one_head(q[b, h], q[b, h], *of_head))
            torch.testing.assert_close(causal[b, h], one_causal_head(q[b, h], *of_head))


@by_form
def test_one_cluster_of_all_is_full_attention(form: Callable[..., Tensor]) -> None:
    q, k, v, centroids = made(1)
    expected = full.naive(unit(q), unit(k), v)
    torch.testing.assert_close(form(q, v, centroids, k=k), expected)
    past = torch.ones(N, N).tril().bool()
    expected = full.naive(unit(q), unit(q), v, mask=past)
    torch.testing.assert_close(form(q, v, centroids, causal=True), expected)


@by_form
def test_a_centroid_given_twice_changes_nothing(form: Callable[..., Tensor]) -> None:
    q, k, v, centroids = made()
    window = RoutingOptions(window=5)
    twice = form(q, v, centroids.repeat(1, 2, 1), k=k, options=window)
    torch.testing.assert_close(twice, form(q, v, centroids, k=k, options=window))
    chosen = form(q, v, torch.cat([centroids, centroids[:, :1]], 1), k=k, options=window)
    in_two = ~torch.isclose(chosen, twice).all(-1)
    assert in_two.any()  # the mean gives the cluster that is there twice the weight of two


def test_pairs_are_at_most_those_of_the_clusters() -> None:
    q, k, v, centroids = made()
    with record() as notes:
        FORMS["naive"](q, v, centroids, k=k, options=RoutingOptions(window=3))
    assert (notes.last("weights") > 0).sum((-2, -1)).le(K * 3**2).all()
    assert notes.last("members").shape == notes.last("key_members").shape == (B, H, K, 3)


@by_form
def test_members_are_noted_by_position_and_empty_places_as_minus_one(
    form: Callable[..., Tensor],
) -> None:
    q, _, v, centroids = made()
    with record() as notes:
        form(q, v, centroids, padding=REAL)
    members, clusters = notes.last("members"), notes.last("clusters")
    assert members.shape == (B, H, K, 4)
    assert torch.equal(members[0].sort().values, members[0])
    assert torch.equal(members[1, ..., 3], torch.full((H, K), -1))  # ⌈9 / 4⌉ = 3 of them
    assert members[1].max() < 9
    likeness = unit(q) @ centroids.mT
    assert torch.equal(clusters, likeness.argmax(-1))


@by_form
def test_padding_alone_and_windows_beyond_the_sequence_are_never_nan(
    form: Callable[..., Tensor],
) -> None:
    q, k, v, centroids = made()
    q.requires_grad_()
    nobody = torch.zeros(B, N, dtype=torch.bool)
    for causal in (False, True):
        keys = None if causal else k
        given = {"k": keys, "causal": causal, "options": RoutingOptions(window=1000)}
        out = form(q, v, centroids, padding=nobody, **given)
        assert (out == 0).all()
        (gradient,) = torch.autograd.grad(out.sum(), q)
        assert (gradient == 0).all()


# ---- causality


def changed_from(at: int) -> tuple[Tensor, ...]:
    """Queries, other queries from ``at`` on, and what goes with them."""
    q, _, v, centroids = made()
    other = q.clone()
    other[:, :, at:] = centroids[:, :1] * 20  # they crowd into the first cluster
    return q, other, v, centroids


def test_membership_of_the_published_decoder_leaks() -> None:
    """Changing tokens 6 … 12 changes the outputs of tokens before them."""
    q, other, v, centroids = changed_from(6)
    before, after = leaky(q, v, centroids), leaky(other, v, centroids)
    moved_rows = ~torch.isclose(before, after).all(-1)[:, :, :6]
    assert moved_rows.any(-1).all()  # in every head


def test_the_published_decoder_leaks_membership_and_no_values() -> None:
    q, _, v, centroids = changed_from(6)
    other = v.clone()
    other[:, :, 6:] = 99
    before, after = leaky(q, v, centroids), leaky(q, other, centroids)
    assert torch.equal(before[:, :, :6], after[:, :, :6])


@by_form
@windows
def test_the_causal_layer_does_not_leak(form: Callable[..., Tensor], window: int | None) -> None:
    q, other, v, centroids = changed_from(6)
    given = {"causal": True, "options": RoutingOptions(window=window)}
    before, after = form(q, v, centroids, **given), form(other, v, centroids, **given)
    # Not to the last bit: the clusters' sizes change, and with them the order of sums.
    torch.testing.assert_close(before[:, :, :6], after[:, :, :6], rtol=0, atol=1e-12)
    assert not torch.isclose(before[:, :, 6:], after[:, :, 6:]).all()


def test_causal_outputs_do_not_depend_on_the_length() -> None:
    """Nor does the reach: a sequence cut short gives the same outputs."""
    q, _, v, centroids = made()
    whole = FORMS["gathered"](q, v, centroids, causal=True)
    cut = FORMS["gathered"](q[:, :, :6], v[:, :, :6], centroids, causal=True)
    torch.testing.assert_close(whole[:, :, :6], cut)


def test_causal_routing_refuses_keys_of_their_own() -> None:
    q, k, v, centroids = made()
    for form in FORMS.values():
        with pytest.raises(ValueError, match="shares queries and keys"):
            form(q, v, centroids, k=k, causal=True)


# ---- k-means


def test_centroids_move_as_the_moving_average_says() -> None:
    q, k, _, centroids = made()
    new = moved(centroids, q, k, decay=0.75, padding=REAL)
    for h in range(H):
        sums = torch.zeros(K, D, dtype=torch.float64)
        for x in (unit(q), unit(k)):
            for b in range(B):
                for i in range(int(REAL[b].sum())):
                    sums[int((centroids[h] @ x[b, h, i]).argmax())] += x[b, h, i]
        for mu, total, found in zip(centroids[h], sums, new[h], strict=True):
            expected = 0.75 * mu + 0.25 * total / total.norm() if total.any() else mu
            torch.testing.assert_close(found, expected / expected.norm())


def test_a_centroid_without_members_stays() -> None:
    q, k, _, centroids = made()
    q = k = centroids[:, :1].expand(B, H, N, D)
    new = moved(centroids, q, k, decay=0.5)
    stay = (new == centroids).all(-1)
    assert torch.equal(stay, torch.tensor([[False, True, True, True]] * H))


def test_k_means_finds_groups_that_are_there() -> None:
    torch.manual_seed(0)
    directions = F.normalize(unit(torch.randn(1, 3, D, dtype=torch.float64)), dim=-1)
    group = torch.arange(60) % 3
    x = (directions[:, group] + 0.1 * torch.randn(1, 60, D)).unsqueeze(0)
    centroids = F.normalize(directions + 0.5 * torch.randn(1, 3, D), dim=-1)
    start = (centroids * directions).sum(-1)
    for _ in range(30):
        centroids = moved(centroids, x, x, decay=0.8)
    end = (centroids * directions).sum(-1)
    assert (start < 0.9).any()
    assert (end > 0.99).all()


def layer(*, causal: bool = False, decay: float = 0.5) -> RoutingAttention:
    torch.manual_seed(1)
    return RoutingAttention(
        14, 2, causal=causal, options=RoutingOptions(clusters=3, decay=decay)
    ).double()


@pytest.mark.parametrize("causal", [False, True])
def test_centroids_move_in_the_backward_pass_of_training_alone(causal: bool) -> None:
    ours, x = layer(causal=causal), torch.randn(B, N, 14, dtype=torch.float64)
    first = ours.centroids.clone()
    out = ours(x)
    assert torch.equal(ours.centroids, first)
    out.sum().backward()
    q, k, _ = ours._project(x, None)
    torch.testing.assert_close(ours.centroids, moved(first, q, k, decay=0.5))
    assert not torch.allclose(ours.centroids, first)
    ours.eval()
    now = ours.centroids.clone()
    ours(x).sum().backward()
    assert torch.equal(ours.centroids, now)
    assert "centroids" in ours.state_dict()
    assert not ours.centroids.requires_grad


def test_recomputing_in_training_moves_centroids_once() -> None:
    """And the gradients are those of the members that the forward pass chose."""
    x = torch.randn(B, N, 14, dtype=torch.float64)
    plain, again = layer(decay=0), layer(decay=0)
    wanted = torch.autograd.grad(plain(x).square().sum(), list(plain.parameters()))
    out = checkpoint(again, x, use_reentrant=False)
    found = torch.autograd.grad(out.square().sum(), list(again.parameters()))
    torch.testing.assert_close(found, wanted)
    assert torch.equal(again.centroids, plain.centroids)


def test_decay_outside_of_zero_to_one_is_refused() -> None:
    for decay in (-0.1, 1.5):
        with pytest.raises(ValueError, match="the part of a centroid that stays"):
            RoutingOptions(decay=decay)


# ---- the package


def test_the_package_computes_the_same_from_normalised_queries_and_keys() -> None:
    """Up to the 1e-5 that it adds to the number of clusters, and that a layer norm has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip("routing_transformer.routing_transformer")
    q, k, v, centroids = (x.float() for x in made())
    q, k, v = unit(q), unit(k), v @ torch.ones(E, D)
    theirs = package.KmeansAttention(K, 3, H, D).eval()
    theirs.kmeans.means.copy_(centroids)
    theirs.kmeans.initted.fill_(True)
    expected, _ = theirs(q, k, v)
    for form in FORMS.values():
        out = form(q, v, centroids, k=k, options=RoutingOptions(window=3))
        torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
