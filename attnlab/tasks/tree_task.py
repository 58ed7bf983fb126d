"""What the tasks on trees share: tokens, sizes and classes follow from the form of the trees."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from attnlab.tasks import Task
from attnlab.tasks.tree_forms import TreeForm


class TreeTask(Task):
    """A classifier of trees, as trees, words or bracketed text (``attnlab.tasks.tree_forms``).

    ``names_of_classes`` are in the order of their numbers.
    """

    kind: ClassVar[str] = "classifier"
    names_of_classes: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def _form(self) -> TreeForm:
        """How the trees become tokens."""

    @property
    def length(self) -> int:
        return self._form.length

    @property
    def vocab(self) -> int:
        return self._form.vocab

    @property
    def classes(self) -> int:
        return len(self.names_of_classes)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The words and labels of tokens; `·` where a row is filled up."""
        return self._form.tokens(ids)
