"""What exercises that are data have in common: a question, and the name under which a page has
them."""

import inspect
import sys
from dataclasses import dataclass


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """An exercise as data; subclasses are called with a learner's answer and give a `Verdict`.

    `question` is the help: what is asked for, and in what form it is to be answered.
    """

    question: str

    def __post_init__(self) -> None:
        own = {
            "__doc__": inspect.cleandoc(self.question),
            "__module__": sys._getframe(2).f_globals["__name__"],  # as in collections.namedtuple
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def __name__(self) -> str:
        """The name under which its module has it."""
        page = vars(sys.modules[self.__module__])
        return next((name for name, value in page.items() if value is self), "check")

    def __repr__(self) -> str:
        return f"<{self.__name__}: {self.question.splitlines()[0]}>"
