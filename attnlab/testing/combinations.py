"""What goes with what, tried: pairs of parts in a small model, and objectives with mechanisms.

``attnlab.goes_with`` says yes or no. Where it says yes, a model of the two trains a step; where it
says no, the model is refused in a sentence.
"""

from itertools import combinations
from typing import Any

import pytest
import torch

from attnlab import catalog
from attnlab.core.card import CAUSAL, Card
from attnlab.core.claims import Objective
from attnlab.models.options import CLASSIFIERS
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch
from attnlab.testing.architecture import of_role
from attnlab.testing.mechanisms import Cases, named

ROLES = ("feed", "join", "depth")
VOCAB, N = 7, 6


def pairs(card: Card) -> list[Any]:
    """This card with each page of a role that comes later in ``ROLES``."""
    if card.role not in ROLES:
        return []
    later = ROLES[ROLES.index(card.role) + 1 :]
    return [pytest.param(card, other, id=f"{card.name}-{other.name}") for other in of_role(*later)]


def objectives(card: Card) -> list[Any]:
    """An objective with two mechanisms of each causality, and with every feed-forward layer."""
    if card.role != "objective":
        return []
    told = [each for each in catalog.shelf() if each.mixes and each.structure is None]
    few = [each for causal in CAUSAL for each in [c for c in told if c.causal == causal][:2]]
    parts = [*few, *of_role("feed")]
    return [pytest.param(card, each, id=f"{card.name}-{each.name}") for each in parts]


PAIRS = Cases(pairs, of_role(*ROLES))
ASKED = Cases(objectives, [c for c in catalog.shelf("objectives") if c.role == "objective"])
FEW = Cases(lambda card: [named(card)] if card.role in ROLES else [], of_role(*ROLES))


def objective_of(name: str) -> Any:
    takes = catalog.card(name).option_names()
    return catalog.build(name, **({"vocab": VOCAB} if "vocab" in takes else {}))


def model(*, vocab: int = VOCAB, **parts: Any) -> TinyTransformer:
    torch.manual_seed(1)
    given = {"dim": 8, "heads": 2, "layers": 2, "max_len": N, **parts}
    return TinyTransformer(vocab, **given)


def step(made: TinyTransformer, objective: str = "next_token") -> None:
    """One step of training: finite, and a gradient for what was used."""
    tokens = torch.arange(2 * N).view(2, N) % VOCAB
    targets = tokens[:, 0] if made.config["kind"] == "classifier" else tokens.roll(-1, 1)
    asked = objective_of(objective)
    loss, count = asked(made.train(), Batch(tokens, targets), torch.Generator().manual_seed(0))
    assert loss.isfinite()
    assert count > 0
    loss.backward()
    grads = [p.grad for p in made.parameters() if p.grad is not None]
    assert grads
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize(("card", "other"), PAIRS)
def test_two_parts_of_a_model_fit_or_are_refused(card: Card, other: Card) -> None:
    parts = {card.role: card.name, other.role: other.name}
    fits = catalog.goes_with(card.name, other.name)
    assert catalog.goes_with(other.name, card.name) == fits
    if any(getattr(each.claims, "ahead", "") for each in (card, other)):
        parts |= {"kind": "classifier", "classes": VOCAB}
    if not fits:
        with pytest.raises(ValueError, match=r"needs a join that |take a join that "):
            model(**parts)
        return
    if "join" not in parts and not catalog.goes_with("pre_norm", other.name):
        parts["join"] = next(
            each.name for each in of_role("join") if catalog.goes_with(each.name, other.name)
        )
    step(model(**parts))


@pytest.mark.parametrize(("card", "part"), ASKED)
def test_what_learns_from_an_objective_or_is_refused(card: Card, part: Card) -> None:
    """In a model of the first kind that fits; where none does, every kind refuses."""
    fits = catalog.goes_with(card.name, part.name)
    assert catalog.goes_with(part.name, card.name) == fits
    claims = card.claims
    assert isinstance(claims, Objective)
    if fits:
        made = filter(None, (asked_model(card, part, kind) for kind in claims.models))
        step(next(made), card.name)
        return
    for kind in claims.models:
        with pytest.raises(ValueError, match=r"causal|cannot stand in a decoder"):
            asked_model(card, part, kind, refused=False)


def asked_model(
    card: Card, part: Card, kind: str, *, refused: bool = True
) -> TinyTransformer | None:
    """A model of this kind for the objective, with the mechanism or the feed-forward layer; None,
    or its ValueError, where it is ``refused``."""
    objective = objective_of(card.name)
    size = VOCAB + objective.specials
    own: dict[str, Any] = {"feed": part.name}
    if part.role != "feed":
        own = {"attention": part.name, "attention_options": dict(part.small)}
    if kind in CLASSIFIERS:
        own["classes"] = objective.classes or size
    try:
        return model(vocab=size, max_len=objective.longest(N), kind=kind, **own)
    except ValueError:
        if refused:
            return None
        raise


@pytest.mark.parametrize("card", FEW)
def test_parts_of_one_role_are_no_question(card: Card) -> None:
    same = next(iter(of_role(card.role)))
    with pytest.raises(ValueError, match=r"goes_with takes a mechanism .* or two of a feed-"):
        catalog.goes_with(card.name, same.name)


def test_some_go_together_and_some_do_not() -> None:
    fitting = {
        (one.name, other.name): catalog.goes_with(one.name, other.name)
        for first, second in combinations(ROLES, 2)
        for one in of_role(first)
        for other in of_role(second)
    }
    assert fitting["pre_norm", "reversible"]
    assert not fitting["post_norm", "reversible"]
    assert fitting["mlp", "reversible"]
    assert fitting["mlp", "sub_ln"]
    assert not fitting["switch", "sub_ln"]
    assert catalog.goes_with("next_token", "full")
    assert catalog.goes_with("masked_lm", "fnet")
    assert not catalog.goes_with("masked_lm", "sparse_transformer")
    assert not catalog.goes_with("span_corruption", "expert_choice")
