"""What is said of the steps; the page shows these sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

MEANS = {
    "correct": "is correct",
    "restored": "is restored: right, although a parent is wrong",
    "local": "went wrong by itself, a local error",
    "propagated": "is propagated: what wrong parents give",
    "given": "is given",
}


def announcement(told: Mapping[str, Any], node: int) -> str:
    """All steps, and what happened at one node."""
    return f"{told['said']} {told['nodes'][node]['said']}"


def of_all(counts: Mapping[str, int], depth: int, question: str) -> str:
    """How many steps are of each kind."""
    total = sum(counts.values())
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    asked = f"{question} " if question else ""
    return f"{asked}{total} step{'s' * (total != 1)} of depth {depth}: {listed}."


def of_node(nodes: Sequence[Mapping[str, Any]], at: int, kind: str) -> str:
    """What is stated at a node, what follows from its parents as stated, and what is right."""
    one = nodes[at]
    name = f"“{one['name']}”"
    stated = "nothing readable" if one["stated"] == "?" else one["stated"]
    said = f"{name} {MEANS[kind]}: {stated}"
    if not one["parents"]:
        copied = f"; {one['right']} was given" if one["wrong"] else ""
        return f"{said}{copied}."
    parents = [nodes[parent] for parent in one["parents"]]
    listed = ", ".join(
        f"“{each['name']}” = {each['stated']}"
        + (f" (right: {each['right']})" if each["wrong"] else "")
        for each in parents
    )
    said += f", from {listed}"
    if kind == "local":
        follows = "nothing" if one["follows"] == "?" else one["follows"]
        said += f"; from these follows {follows}"
    return f"{said}. Right is {one['right']}." if one["wrong"] else f"{said}."
