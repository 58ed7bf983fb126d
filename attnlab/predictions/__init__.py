"""The predictions of the lessons: what is asked, and what nobody sees before the guess.

One file a lesson, ``12.json``, in the order of the lesson; ``predict("12.1")`` asks the first. A
question and its choices are written plainly; what tells the answer is *sealed* (base64), so that
neither a page that shows the sources of a notebook nor a glance at the file gives it away. It is no
secret.

    python -m attnlab.predictions 12                print those of lesson 12 plainly
    python -m attnlab.predictions 12 --seal FILE    write them back; - reads what is typed
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PLAIN = ("question", "choices")


@dataclass(frozen=True)
class Prediction:
    """A guess to which the reader commits, and what is shown only then.

    ``title`` is the message of the picture, ``after`` the Markdown below it, which discusses the
    result, ``prints`` what the picture prints on every machine, where the gate compares that.
    """

    question: str
    choices: tuple[str, ...]
    answer: str
    why: str
    title: str = ""
    after: str = ""
    prints: str = ""

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise ValueError(f"`choices` should hold at least two, got {len(self.choices)}")
        if len(set(self.choices)) < len(self.choices):
            raise ValueError(f"`choices` should differ, got {list(self.choices)}")
        if self.answer not in self.choices:
            raise ValueError(
                f"`answer` should be one of the choices {list(self.choices)}, got {self.answer!r}"
            )
        for name in ("question", "why"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ValueError(f"`{name}` should be a sentence, got {getattr(self, name)!r}")


def prediction(key: str) -> Prediction:
    """The prediction with a key such as "12.1": the first of lesson 12."""
    lesson, _, number = key.partition(".")
    known = of_lesson(lesson)
    if not number.isdecimal() or not 1 <= int(number) <= len(known):
        raise ValueError(
            f"there is no prediction {key!r}; lesson {lesson!r} has "
            + (", ".join(f"{lesson}.{n + 1}" for n in range(len(known))) or "none")
        )
    return known[int(number) - 1]


@cache
def of_lesson(lesson: str) -> tuple[Prediction, ...]:
    """All predictions of a lesson, which is named by its two digits; none for an unknown one."""
    path = FOLDER / f"{lesson}.json"
    if not lesson.isdecimal() or not path.exists():
        return ()
    return tuple(_opened(one) for one in json.loads(path.read_text(encoding="utf-8")))


def plainly(known: tuple[Prediction, ...]) -> str:
    """As JSON in which everything can be read; fields that say nothing are left out."""
    told = [{name: value for name, value in asdict(one).items() if value} for one in known]
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def sealed(plain: str) -> str:
    """The content of a lesson's file, from the JSON of ``plainly``."""
    return json.dumps(list(_sealed(plain)), indent=1, ensure_ascii=False) + "\n"


def _sealed(plain: str) -> Iterator[dict[str, Any]]:
    for told in json.loads(plain):
        one = made(told)
        open_, closed = told, {name: told[name] for name in told if name not in PLAIN}
        text = json.dumps(closed, ensure_ascii=False)
        yield {"question": one.question, "choices": open_["choices"]} | {
            "sealed": b64encode(text.encode()).decode()
        }


def made(told: Mapping[str, Any]) -> Prediction:
    """A prediction from its fields by name; one that is unknown or of a wrong kind is refused."""
    unknown = sorted(set(told) - {field.name for field in fields(Prediction)})
    if unknown:
        raise ValueError(f"a prediction has no field {', '.join(unknown)}")
    return Prediction(**(dict(told) | {"choices": tuple(told["choices"])}))


def _opened(kept: Mapping[str, Any]) -> Prediction:
    closed = json.loads(b64decode(kept["sealed"]))
    return made({name: kept[name] for name in PLAIN} | closed)
