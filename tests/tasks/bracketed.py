"""Reading bracketed text, apart from the library's own code."""

from collections.abc import Sequence


def nested(tokens: Sequence[str]) -> list:
    """The nested lists of `(S (NP the dog ) barks )`: label first, leaves as strings."""
    stack: list[list] = [[]]
    for token in tokens:
        if token == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif token.startswith("(") and len(token) > 1:
            stack.append([token[1:]])
        elif token != "·":
            stack[-1].append(token)
    (tree,) = stack.pop()
    return tree


def rows(task, batch) -> list[list]:
    """The trees of a batch in brackets, as nested lists."""
    return [nested(task.tokens(row)) for row in batch.inputs]


def depth(tree) -> int:
    return 0 if isinstance(tree, str) else 1 + max(map(depth, tree[1:]))


def leaves(tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [leaf for child in tree[1:] for leaf in leaves(child)]
