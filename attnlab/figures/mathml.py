r"""Equations for pages without a network: the LaTeX of the library's stories as a tree of MathML.

    tree(r"\frac{a}{b}")  # ["math", {"display": "block"}, ["mfrac", ["mi", "a"], ["mi", "b"]]]

A node is [name, child, …], with a dictionary of attributes before its children if it has some; a
leaf holds its text. The front end makes elements of it.
"""

import re
from collections.abc import Iterator
from typing import Any

Node = list[Any]

LETTERS = {
    **{
        "alpha": "α",
        "beta": "β",
        "gamma": "γ",
        "delta": "δ",
        "epsilon": "ϵ",
        "varepsilon": "ε",
        "zeta": "ζ",
    },
    **{"eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν"},
    **{"xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "ϕ"},
    **{"chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ"},
    **{"Lambda": "Λ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω"},
    **{"ell": "ℓ"},
}
SIGNS = {
    **{"cdot": "·", "times": "×", "odot": "⊙", "otimes": "⊗", "pm": "±", "circ": "∘"},
    **{"le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "equiv": "≡"},
    **{"approx": "≈", "propto": "∝", "in": "∈", "notin": "∉", "subseteq": "⊆", "cup": "∪"},
    **{"cap": "∩", "to": "→", "mapsto": "↦", "downarrow": "↓", "top": "⊤", "dagger": "†"},
    **{"ldots": "…", "dots": "…", "cdots": "⋯", "infty": "∞", "partial": "∂", "forall": "∀"},
    **{"lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩"},
    **{"lVert": "‖", "rVert": "‖", "Vert": "‖", "mid": "∣", "{": "{", "}": "}", "|": "‖"},
    **{"ast": "∗", "star": "⋆", "setminus": "∖", "gets": "←", "leftarrow": "←", "emptyset": "∅"},
}
LARGE = {"sum": "∑", "prod": "∏", "max": "max", "min": "min", "bigcup": "⋃", "lim": "lim"}
NAMES = ("log", "ln", "exp", "tanh", "sin", "cos", "softmax", "det", "arg")
LIMITS = {"movablelimits": "true"}
SPACES = {"quad": "1em", "qquad": "2em", ",": "0.17em", ";": "0.28em", ":": "0.22em", " ": "0.3em"}
ACCENTS = {"tilde": "˜", "hat": "^", "bar": "¯", "overline": "¯", "vec": "→", "widetilde": "˜"}
STYLES = {"mathrm", "text", "mathbf", "mathcal", "mathbb", "operatorname", "mathit", "boldsymbol"}
BOARD = {"R": "ℝ", "E": "𝔼", "N": "ℕ", "Z": "ℤ", "C": "ℂ", "P": "ℙ"}
SIZES = {"Bigl", "Bigr", "bigl", "bigr", "Big", "big", "displaystyle", "!"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)


def tree(latex: str) -> Node | None:
    """The equation as MathML; None where it has a command that is not known here."""
    try:
        return ["math", {"display": "block"}, *_Reader(latex).read()]
    except (KeyError, IndexError):
        return None


class _Reader:
    def __init__(self, latex: str) -> None:
        self.tokens = _TOKEN.findall(" ".join(latex.split()))
        self.at = 0

    def read(self, until: str = "") -> list[Node]:
        """Nodes up to a closing sign, which is passed over."""
        found: list[Node] = []
        while self._peek():
            token = self._next()
            if token == until:
                return found
            if token in "^_'":
                found.append(self._scripts(found.pop() if found else ["mrow"], token))
            elif (node := self._node(token)) is not None:
                found.append(node)
        if until:
            raise IndexError(until)
        return found

    def _peek(self) -> str:
        """The next token that is no space, "" at the end."""
        while self.at < len(self.tokens) and self.tokens[self.at] == " ":
            self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _next(self, *, spaces: bool = False) -> str:
        if not spaces:
            self._peek()
        token = self.tokens[self.at]
        self.at += 1
        return token

    def _argument(self) -> Node:
        token = self._next()
        if token == "{":
            inside = self.read("}")
            return inside[0] if len(inside) == 1 else ["mrow", *inside]
        return self._node(token) or ["mrow"]

    def _scripts(self, base: Node, first: str) -> Node:
        """A base with what stands below and above it."""
        below = above = None
        primes = 0
        token = first
        while True:
            if token == "'":
                primes += 1
            elif token == "_":
                below = self._argument()
            else:
                above = self._argument()
            if self._peek() not in ("^", "_", "'"):
                break
            token = self._next()
        if primes:
            prime: Node = ["mo", "′" * primes]
            above = prime if above is None else ["mrow", prime, above]
        large = base[1:2] == [LIMITS]
        names = ("munder", "mover", "munderover") if large else ("msub", "msup", "msubsup")
        if above is None:
            return [names[0], base, below]
        if below is None:
            return [names[1], base, above]
        return [names[2], base, below, above]

    def _node(self, token: str) -> Node | None:
        if token == "{":
            return ["mrow", *self.read("}")]
        if token[0] == "\\":
            return self._command(token[1:])
        if token.isdigit():
            return ["mn", token]
        if token.isalpha():
            return ["mi", token]
        if token in "()[]|":
            return ["mo", {"stretchy": "false"}, token]
        return ["mo", {"-": "−", "*": "∗", "~": " "}.get(token, token)]

    def _command(self, name: str) -> Node | None:
        if name in ("left", "right"):
            sign = self._next()
            sign = SIGNS[sign[1:]] if sign[0] == "\\" else sign
            return None if sign == "." else ["mo", {"stretchy": "true"}, sign]
        if name in SIZES:
            return None
        if name in SPACES:
            return ["mspace", {"width": SPACES[name]}]
        if name in LETTERS:
            return ["mi", LETTERS[name]]
        if name in LARGE:
            return ["mo", LIMITS, LARGE[name]]
        if name in NAMES:
            return ["mi", name]
        if name in STYLES:
            return self._styled(name)
        if name in ACCENTS:
            return ["mover", {"accent": "true"}, self._argument(), ["mo", ACCENTS[name]]]
        if name in ("frac", "tfrac", "dfrac"):
            return ["mfrac", self._argument(), self._argument()]
        if name == "sqrt":
            return ["msqrt", self._argument()]
        if name == "underbrace":
            return ["munder", LIMITS, self._argument(), ["mo", "⏟"]]
        if name == "bmod":
            return ["mo", "mod"]
        return ["mo", {"stretchy": "false"}, SIGNS[name]]

    def _styled(self, name: str) -> Node:
        letters = "".join(self._letters())
        if name == "mathbb":
            return ["mi", BOARD[letters]]
        if name == "text":
            return ["mtext", letters]
        if name in ("mathbf", "boldsymbol"):
            return ["mi", {"class": "bold"}, letters]
        return ["mi", {"mathvariant": "normal"}, letters]

    def _letters(self) -> Iterator[str]:
        """The plain letters of an argument, with or without braces."""
        token = self._next()
        if token != "{":
            yield token
            return
        while (token := self._next(spaces=True)) != "}":
            yield " " if token[0] == "\\" else token
