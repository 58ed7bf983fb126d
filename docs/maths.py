"""LaTeX as MathML, which browsers draw themselves: no script, and no request for one."""

import re
from html import escape

from latex2mathml.converter import convert

# Names that the converter leaves to LaTeX; MathML wants lengths.
_SPACES = {
    "negativethinmathspace": "-0.167em",
    "negativemediummathspace": "-0.222em",
    "negativethickmathspace": "-0.278em",
}
_UPRIGHT = re.compile(r'(?:<mi mathvariant="normal">([^<&]+)</mi>){2,}')
_BAR = re.compile("<mo([^>]*)>(&#x0007C;|&#x02016;)</mo>")
_LETTER = re.compile(r'<mi mathvariant="normal">([^<&]+)</mi>')


def mathml(latex: str, *, block: bool = False) -> str:
    """One ``<math>`` element; the LaTeX is kept as its alternative text."""
    tidy = re.sub(r"\\\n", r"\\ ", latex.strip())
    drawn = convert(tidy, display="block" if block else "inline")
    for name, length in _SPACES.items():
        drawn = drawn.replace(f'"{name}"', f'"{length}"')
    drawn = _BAR.sub(r'<mo lspace="0.06em" rspace="0.06em"\1>\2</mo>', drawn)
    drawn = _UPRIGHT.sub(_word, drawn)
    return drawn.replace("<math ", f'<math alttext="{escape(tidy)}" ', 1)


def _word(letters: re.Match[str]) -> str:
    """Letters set upright one by one are a name, such as softmax."""
    return f"<mi>{''.join(_LETTER.findall(letters[0]))}</mi>"
