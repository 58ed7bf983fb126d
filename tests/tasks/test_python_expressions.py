"""Types by rules, compared with what Python itself evaluates, and the file that comes with them."""

import ast
import json
import lzma
from collections import Counter, defaultdict
from importlib import resources

import pytest

from attnlab.structures.tree import Tree
from attnlab.tasks import python_expressions
from attnlab.tasks.python_expressions import (
    FILE,
    FUNCTIONS,
    METHODS,
    MOST_LEAVES,
    MOST_NODES,
    OPEN_ROOTS,
    TYPES,
    expressions,
    from_source,
    pack,
    reduced,
    type_of,
    unpack,
)


def tree_of(source: str) -> Tree:
    return reduced(ast.parse(source, mode="eval").body)


KNOWN = """
"a" + "b"; b"a" + b"b"; [1] + ["a"]; (1,) + (2,); 1 + 2; 1 + 2.5; True + True; 1 - 2; 2 // 3; 7 % 4
7.5 % 2; "%d" % 3; b"%d" % 3; "%s %s" % (1, 2); "a" * 3; 3 * "a"; [1] * 2; 2 * (1,); 2 * 3; 1 / 2
2 << 1; 5 & 3; 5 | True; True & False; True ^ True; -1; -1.5; ~5; +True; not 1; 1 < 2 < 3
1 if 2 else 3; "a" if 0 else "b"; [] if 1 else [2]; True and False; "a" or "b"; 3 or 4; f"{1}x"; f""
"abc"[1]; b"abc"[1]; "abc"[1:]; b"abc"[:2]; [1, 2][::-1]; (1, 2)[:1]; (1, 2)[1]; ["a", "b"][0]
"a b".split()[0]; b"a b".split()[1]; "a b".partition(" ")[0]; "a b".split()[1:]; "a"[0][0]
len("abc"); str(1); int("3"); bool(1); bytes(3); list("ab"); tuple("ab"); sorted("ba"); repr(1)
isinstance(1, int); divmod(7, 2); float(3); max(1, 2); min("a", "b"); abs(-3); abs(-1.5); abs(True)
ord("a"); chr(97); hex(3); any([]); dir(1); hash("a"); [x for x in "ab"]; (1, 2); []; (); {} == {}
"a".join(["b", "c"]); b"a".join([b"b"]); "{}".format(1); " a ".strip(); b" a ".strip()
"a".encode(); b"a".decode(); "a".upper().encode().decode(); "ab".startswith("a"); "ab".rfind("b")
(3).bit_length(); "a-b".replace("-", "+"); b"ab".replace(b"a", b"b"); "a\\nb".splitlines()
"x=1".partition("="); "a b".split(); "a" in "ab"; (y := 3);
len("a b".split()) + int("3"); ", ".join(sorted("ba"))[:2] * 3
"a" + "b" if len("ab") else str(3); (lambda: 1) is None; [*"ab"]; "a".zfill(3).ljust(9)[2:4]
"""
SOURCES = [source.strip() for source in KNOWN.replace("\n", ";").split(";") if source.strip()]


@pytest.mark.parametrize("source", SOURCES)
def test_the_rules_agree_with_python(source):
    assert type_of(tree_of(source)) == type(eval(source)).__name__


@pytest.mark.parametrize(
    "source",
    """x; x + 1; x + y; "a" + 1; x.y; f(x); x.get("a"); x and "a"; 1 or "a"; 1 if x else "a"; x % 3
    [1] + (2,); x * y; max(x); max([1]); x[1]; x[1:]; [1, "a"][x]; [*x][0]; x.split; f(str)(x)
    lambda: 1; {}; {1}; None; x.join; "a" * "b"; len; x << 1; 1.5 & 1; ~1.5; 1 ** x; x - 1
    len[x]; max(1, "a")
    """.replace("\n", ";").split(";")[:-1],
)  # fmt: skip
def test_what_the_rules_do_not_give(source):
    assert type_of(tree_of(source.strip())) is None


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ("x + 'a'", "str"),
        ("x + [y]", "list"),
        ("x * (1,)", "tuple"),
        ("x.join(y)", "str"),
        ("x.split(y)[-1]", "str"),
        ("x.y.encode(z)", "bytes"),
        ("'%s' % x", "str"),
        ("len(x) - 1 if y else 0", "int"),
        ("x.startswith(y) and not z", "bool"),
        ("str(x)[y:]", "str"),
        ("max(len(x), 3, key=y)", "int"),
    ],
)
def test_names_are_taken_to_fit(source, type_):
    assert type_of(tree_of(source)) == type_


def test_the_reduced_tree():
    source = (
        "x.y.join(f'{a!r:>3}b' for i in sorted(z, key=lambda q: -q)) + '' * 3 if p <= 1 else {}"
    )
    assert tree_of(source).nested() == [
        "IfExp",
        ["Compare", "name", "0"],
        [
            "BinOp+",
            [
                "Call",
                ["Attribute", ["Attribute", "name", ".attr"], ".join"],
                [
                    "GeneratorExp",
                    ["JoinedStr", ["FormattedValue", "name", ["JoinedStr", '""']], '""'],
                    ["comprehension", "name",
                     ["Call", "sorted", "name", ["keyword", ["Lambda", ["UnaryOp-", "name"]]]]],
                ],
            ],
            ["BinOp*", '""', "0"],
        ],
        "Dict",
    ]  # fmt: skip
    assert tree_of("(True, None, ..., 1j, 1.5, b'')").nested() == [
        "Tuple", "True", "None", "...", "0j", "0.0", 'b""',
    ]  # fmt: skip


PROGRAM = """
def f(a, b):
    print(len(a) + 1, a.strip() if b else "none", a == b, "x" % a)
    os.path.split(len(a))[0] + "a"
    date.replace(day=len("b"))
    thread.join() + "c"
    return os.path.join(a, b)[1:]
"""


def test_what_is_taken_from_a_program():
    found = {json.dumps(tree.nested()): type_ for tree, type_ in from_source(PROGRAM).items()}
    join = ["Call", ["Attribute", ["Attribute", "name", ".attr"], ".join"], "name", "name"]
    strip = ["Call", ["Attribute", "name", ".strip"]]
    expected = [
        (["BinOp+", ["Call", "len", "name"], "0"], "int"),
        (["Call", "len", "name"], "int"),
        (["Call", "len", '""'], "int"),
        (["IfExp", "name", strip, '""'], "str"),
        (strip, "str"),
        (join, "str"),
        (["Subscript", join, ["Slice", "0"]], "str"),
    ]
    assert found == {json.dumps(tree): type_ for tree, type_ in expected}
    assert not from_source(f"x = ''.join([{'a, ' * (MOST_LEAVES + 1)}])")
    assert not from_source(f"x = str({'-' * (MOST_NODES + 1)}a)")


def test_packing_and_unpacking(tmp_path):
    (tmp_path / "one.py").write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nx = str('\xe9') + '\xe9'\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/two.py").write_text("x = sorted(y) + [1]")
    found = unpack(pack(tmp_path))
    latin = {Tree.of(["Call", "str", '""']), Tree.of(["BinOp+", ["Call", "str", '""'], '""'])}
    assert found == from_source(PROGRAM) | dict.fromkeys(latin, "str")


def test_the_file_that_comes_with_attnlab():
    packed = resources.files(python_expressions.__package__).joinpath(FILE).read_bytes()
    assert len(packed) < 50_000
    contents = json.loads(lzma.decompress(packed))
    assert "CPython 3." in contents["source"]
    assert "PSF License" in contents["licence"]
    assert "Python Software Foundation" in contents["copyright"]
    assert len(contents["expressions"]) == len(expressions()) > 6000


def test_the_expressions_are_small_typed_and_anonymous():
    names = {name for names in FUNCTIONS.values() for name in names}
    names |= {f".{name}" for names in METHODS.values() for name in names}
    names |= {"name", ".attr", '""', 'b""', "0", "0.0", "0j", "...", "None", "True", "False"}
    names |= {"List", "Tuple", "Dict", "Slice", "JoinedStr", "Yield"}
    for tree, type_ in expressions().items():
        assert type_ in TYPES
        assert tree.label in OPEN_ROOTS
        assert len(tree.leaves()) <= MOST_LEAVES
        assert len(tree.nodes()) <= MOST_NODES
        assert {leaf.label for leaf in tree.leaves()} <= names


def test_every_root_leaves_the_type_open():
    by_root = defaultdict(Counter)
    for tree, type_ in expressions().items():
        by_root[tree.label][type_] += 1
    assert set(by_root) == set(OPEN_ROOTS)
    for counts in by_root.values():
        assert len(counts) >= 5
        assert max(counts.values()) < 0.7 * counts.total()
