"""What experts do with a text, in sentences; ``experts.js`` says the same on the page."""

from typing import Any

from attnlab.lens.experts import NONE, Routed
from attnlab_widgets.words import listed, two


def announcement(layer: Routed, tokens: list[str], state: Any) -> str:
    """How much is dropped at the present capacity, and what becomes of the chosen token.

    Of ``state``, ``token`` is its number, ``capacity`` the room of an expert, ``placed`` how many
    choices are placed so far.
    """
    return f"{_of_all(layer, state)} {_of_token(layer, tokens, state)}"


def _of_all(layer: Routed, state: Any) -> str:
    queue, capacity = layer.queue(), state["capacity"]
    if layer.choosing == "experts":
        return _taken(layer, state)
    wanted, k = layer.wanted().tolist(), layer.chosen.shape[1]
    what = "token" if k == 1 else "choice"
    lost = int(layer.dropped(capacity).sum())
    tokens = f"{capacity} token{'s' if capacity > 1 else ''}"
    said = (
        f"Each of {layer.experts} experts has room for {tokens}: "
        f"{lost or 'none'} of {len(queue)} {what}s {'is' if lost < 2 else 'are'} dropped."
    )
    most, least = (wanted.index(end(wanted)) for end in (max, min))
    if wanted[most] == wanted[least]:
        said += f" All experts are chosen alike, {wanted[most]} times each."
    else:
        said += (
            f" Expert {most} is chosen most often, {_times(wanted[most])}, expert {least} "
            f"{'least, ' if wanted[least] else ''}{_times(wanted[least])}."
        )
    if state["placed"] < len(queue):
        said += f" So far {state['placed']} {what}s are placed."
    return said


def _taken(layer: Routed, state: Any) -> str:
    """Where experts choose: how many tokens are taken by none."""
    places, capacity, count = layer.places(), state["capacity"], len(layer.queue())
    left = int(((places < 0) | (places >= capacity)).all(1).sum())
    highest = "token that it scores" if capacity == 1 else f"{capacity} tokens that it scores"
    of_all = f"{left} of {len(places)} tokens {'is' if left == 1 else 'are'} taken by no expert"
    if not left:
        of_all = "every token is taken by one or more"
    said = f"Each of {layer.experts} experts takes the {highest} highest: {of_all}."
    return said + (
        f" So far {state['placed']} choices are placed." if state["placed"] < count else ""
    )


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _of_token(layer: Routed, tokens: list[str], state: Any) -> str:
    i = state["token"]
    name = f"Token {i} “{tokens[i]}”"
    order = {choice: at for at, choice in enumerate(layer.queue())}
    places = layer.places()[i].tolist()
    chosen = [c for c, expert in enumerate(layer.chosen[i].tolist()) if expert != NONE]
    if layer.choosing == "experts":
        lost = [c for c in chosen if places[c] >= state["capacity"]]
        chosen = [c for c in chosen if c not in lost]
        if not chosen:
            return f"{name} is taken by no expert, so it goes on in the stream as it was."
    if not chosen:
        return f"{name} chooses no expert."
    placed = [c for c in chosen if order[i, c] < state["placed"]]
    if not placed:
        return f"{name} is not placed yet."
    lost = [c for c in placed if places[c] >= state["capacity"]]
    kept = [c for c in placed if c not in lost]
    gate = {
        c: f"expert {int(layer.chosen[i, c])} ({two(float(layer.gates[i, c]))})" for c in placed
    }
    if not kept:
        return (
            f"{name} is dropped: {listed([gate[c] for c in lost])} "
            f"{'was' if len(lost) == 1 else 'were'} full, so it goes on in the stream as it was."
        )
    verb = "is taken by" if layer.choosing == "experts" else "goes to"
    found = f"{name} {verb} {listed([gate[c] for c in kept])}"
    if lost:
        found += f"; {listed([gate[c] for c in lost])} {'was' if len(lost) == 1 else 'were'} full"
    return f"{found}."
