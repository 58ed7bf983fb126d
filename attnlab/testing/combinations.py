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
from attnlab.core.options import parameters_of
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch
from attnlab.testing.architecture import of_role
from attnlab.testing.mechanisms import Cases, named

ROLES = ("feed", "join", "depth")
VOCAB, N = 7, 6
UNFIT = (
    "cannot be causal|is always causal|stand in a decoder|decides itself which token|treats the "
    "tokens of a sequence together|not all layers note queries"
)


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


def model(vocab: int = VOCAB, **parts: Any) -> TinyTransformer:
    torch.manual_seed(1)
    given = {"dim": 8, "heads": 2, "layers": 2, "max_len": N + 1, **parts}
    return TinyTransformer(vocab, **given)


def objective_of(name: str) -> Any:
    """The objective; one that adds tokens of its own is told how many the text has, and one that
    has a teacher is given an untrained one."""
    options = catalog.card(name).option_names()
    own: dict[str, Any] = {"vocab": VOCAB} if "vocab" in options else {}
    if "teacher" in parameters_of(catalog.card(name).build):  # no temperature of a teacher
        kind = catalog.card(name).claims.models[0]  # type: ignore[union-attr]
        encodes = kind in ("classifier", "token_classifier")
        own["teacher"] = model(kind=kind, **({"classes": VOCAB} if encodes else {}))
    return catalog.build(name, **own)


def step(made: TinyTransformer, objective: str = "next_token") -> None:
    """One step of training: finite, and a gradient for what was used."""
    tokens = torch.arange(2 * N).view(2, N) % VOCAB
    classes = made.config["kind"] == "classifier"
    batch = Batch(tokens, tokens[:, 0] if classes else tokens.roll(-1, 1))
    asked = objective_of(objective)
    if catalog.card(objective).claims.source:  # type: ignore[union-attr]
        batch = Batch(tokens, tokens.roll(-1, 1), source=tokens.roll(1, 1))
    if (connected := catalog.card(objective).structure) is not None:
        real = torch.ones_like(tokens, dtype=torch.bool)
        batch = Batch(tokens, batch.targets, structure=connected.example(real))
    asked.fitted(made)
    loss, count = asked(made.train(), batch, torch.Generator().manual_seed(0))
    assert loss.isfinite()
    if count:
        loss.backward()
        grads = [p.grad for p in made.parameters() if p.grad is not None]
        assert grads
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.filterwarnings("ignore:the layers have reached no fixed point")
@pytest.mark.parametrize(("card", "other"), PAIRS)
def test_two_parts_of_a_model_fit_or_are_refused(card: Card, other: Card) -> None:
    parts: dict[str, Any] = {card.role: card.name, other.role: other.name}
    fits = catalog.goes_with(card.name, other.name)
    assert catalog.goes_with(other.name, card.name) == fits
    if any(getattr(each.claims, "ahead", "") for each in (card, other)):
        parts |= {"kind": "classifier", "classes": VOCAB}
    if "inexact" in other.option_names():  # a hard choice, of keys or experts, has no fixed point
        parts["depth_options"] = {"inexact": True}
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
    """In a model of the kind that the objective trains first."""
    fits = catalog.goes_with(card.name, part.name)
    assert catalog.goes_with(part.name, card.name) == fits
    objective, role = objective_of(card.name), "feed" if part.role == "feed" else "attention"
    kind, more = objective.models[0], dict(objective.needs)
    if kind in ("classifier", "token_classifier"):
        more["classes"] = objective.classes or VOCAB + objective.specials
    if role == "attention":
        more["attention_options"] = dict(part.small_options)
    given = {"kind": kind, role: part.name, "max_len": objective.longest(N + 1), **more}
    if fits:
        step(model(VOCAB + objective.specials, **given), card.name)
        return
    with pytest.raises(ValueError, match=UNFIT):  # the last two when the model is called
        step(model(VOCAB + objective.specials, **given), card.name)


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
    assert not catalog.goes_with("next_token", "fnet")
    assert not catalog.goes_with("next_token", "expert_choice")
