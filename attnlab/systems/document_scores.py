r"""How far a JSON document agrees with the right one: fields, and the edits between two trees.

**Fields.** A field is a text with the way of keys to it: ``("menu.name", "tea")``. A field that
both documents hold is right; with $r$ right ones in all documents together, $w$ written and $a$
expected, $F_1 = 2r / (w + a)$. A field with one wrong character counts as nothing, and where it
stands in a list counts not at all.

**Trees.** A document is a tree: keys are nodes, texts are leaves, objects in a list are nodes of
their own. The distance is the least sum of edits that make one tree of the other: a text costs its
edits of characters (its length, if it appears or vanishes), any other node 1, a text in the place
of a key 1 and its length. The score is $\max(0, 1 - d(\text{written}, \text{right}) / d(\{\},
\text{right}))$: 1 for the same document, 0 for nothing or what is worse than nothing. So a wrong
digit costs little, and a missing line much.

Both are blind to the order of keys, to blanks around texts and to what is empty: keys are sorted,
the values of all are lists. Numbers, true, false and null are texts, as in JSON, so that a document
that is written as it should be has all scores 1.

The distance between trees is computed by apted, of the extra ``documents``.

Kim, Hong, Yim, Nam, Park, Yim, Hwang, Yun, Han, Park. OCR-free Document Understanding Transformer.
ECCV 2022, arXiv:2111.15664, section 4.2; costs and the sorting of keys are those of the authors'
code, which takes another library, and Python's names of true and false. Pawlik, Augsten. Efficient
Computation of the Tree Edit Distance. ACM TODS 2015, for the algorithm.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Field = tuple[str, str]


def fields(document: Any) -> list[Field]:
    """The fields of a document, (keys joined by dots, text), those of a list one by one."""
    return _fields(_normalised(document), "")


def field_f1(written: Sequence[Any], right: Sequence[Any]) -> float:
    """F1 from 0 to 1 of the fields of all documents together; a ValueError where neither side has
    any."""
    if len(written) != len(right):
        raise ValueError(
            f"each document written needs the right one, got {len(written)} and {len(right)}"
        )
    both = [(Counter(fields(w)), Counter(fields(r))) for w, r in zip(written, right, strict=True)]
    total = sum(w.total() + r.total() for w, r in both)
    if total == 0:
        raise ValueError("none of the documents holds a field, so that F1 is not defined")
    return 2 * sum((w & r).total() for w, r in both) / total


def tree_score(written: Any, right: Any) -> float:
    """1 − edits / edits from nothing, from 0 to 1, of one document.

    A ValueError where the right document holds nothing; an ImportError without apted.
    """
    tree = _tree("", _normalised(right))
    whole = _edits(_tree("", {}), tree)
    if whole == 0:
        raise ValueError("the right document holds no field, so that its score is not defined")
    return max(0.0, 1 - _edits(_tree("", _normalised(written)), tree) / whole)


def text_edits(one: str, other: str) -> int:
    """The fewest characters that are put in, taken out or replaced to make one text of the other
    (Levenshtein)."""
    before = list(range(len(other) + 1))
    for row, a in enumerate(one, 1):
        now = [row]
        for column, b in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (a != b)))
        before = now
    return before[-1]


def _normalised(value: Any) -> Any:
    """Objects with sorted keys and lists as values, without what is empty; texts without blanks
    around them."""
    if isinstance(value, dict):
        found = {}
        for key in sorted(value, key=lambda key: (len(key), key)):
            entries = value[key] if isinstance(value[key], list) else [value[key]]
            kept = [each for each in map(_normalised, entries) if each]
            if kept:
                found[key] = kept
        return found
    if isinstance(value, list):
        return [each for each in map(_normalised, value) if each]
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(value).strip()


def _fields(value: Any, way: str) -> list[Field]:
    if isinstance(value, dict):
        parts = [_fields(each, f"{way}.{key}" if way else key) for key, each in value.items()]
    elif isinstance(value, list):
        parts = [_fields(each, way) for each in value]
    else:
        return [(way, value)] if value else []
    return [each for part in parts for each in part]


@dataclass(frozen=True)
class _Node:
    """A node: a key, an object of a list, or a text, which is a leaf."""

    name: str
    leaf: bool = False
    children: list["_Node"] = field(default_factory=list)

    @property
    def cost(self) -> int:
        return len(self.name) if self.leaf else 1


def _tree(name: str, value: Any) -> _Node:
    if isinstance(value, dict):
        return _Node(name, children=[_tree(key, each) for key, each in value.items()])
    entries = value if isinstance(value, list) else [value] if value else []
    return _Node(
        name,
        children=[
            _Node(each, leaf=True) if isinstance(each, str) else _tree("", each) for each in entries
        ],
    )


def _edits(one: _Node, other: _Node) -> int:
    try:
        from apted import APTED, Config
    except ModuleNotFoundError as error:
        raise ImportError(
            "the distance between documents needs the package apted, which is not installed: "
            "pip install 'attnlab[documents]'",
            name="apted",
        ) from error

    class Costs(Config):
        def delete(self, node: _Node) -> int:
            return node.cost

        insert = delete

        def rename(self, one: _Node, other: _Node) -> int:
            if one.leaf != other.leaf:
                return one.cost + other.cost
            return text_edits(one.name, other.name) if one.leaf else int(one.name != other.name)

        def children(self, node: _Node) -> list[_Node]:
            return node.children

    return int(APTED(one, other, Costs()).compute_edit_distance())
