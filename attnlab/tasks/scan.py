"""SCAN: carry out a command that is composed of parts.

    jump left twice                    →  LTURN JUMP LTURN JUMP
    look opposite right after walk     →  WALK RTURN RTURN LOOK

The encoder reads the command, the decoder writes the actions. A grammar of a few lines makes all
20,910 commands, and each means one sequence of actions, so nothing has to be guessed. The question
is whether a model that has seen the parts carries out a whole that it has not seen:

    verb        walk, look, run, jump
    phrase      a verb; a verb or "turn" to the left or right, also opposite (turn twice, then act)
                or around (turn and act, four times)
    sentence    a phrase, also twice or thrice; two of these joined by "and", or by "after", which
                carries out the second one first

With ``split_by="commands"`` one command in eight is kept for validation. With
``split_by="length"`` training has the commands of at most ``cutoff`` actions and validation all
longer ones, whose parts are known and whose length is not; at the usual 22 actions these are 16,990
and 3,920 commands, of up to 48 actions. ``split_by="both"`` keeps one in eight of the shorter
commands for neither, so that a model can be asked for new commands of the lengths it knows:
``Scan().commands("validation")`` holds them.

Lake, Baroni. Generalization without Systematicity. ICML 2018, arXiv:1711.00350, section 2 and its
supplement. Csordás, Irie, Schmidhuber. The Devil is in the Detail. EMNLP 2021, arXiv:2108.12284,
has the cut-offs beyond 22.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, Batch, Example, Task
from attnlab.tasks.sequences import display_names, in_split, read_and_write, read_and_written

SPLITS_BY = ("commands", "length", "both")
VERBS = ("walk", "look", "run", "jump")
SIDES = ("left", "right")
_WORDS = (*VERBS, "turn", *SIDES, "opposite", "around", "twice", "thrice", "and", "after")
_ACTIONS = (*(verb.upper() for verb in VERBS), "LTURN", "RTURN")
_NAMES = ("start", "end", *_WORDS, *_ACTIONS)
_IDS = {name: place for place, name in enumerate(_NAMES)}
START, END = 0, 1
LONGEST_COMMAND, LONGEST = 9, 48  # words, actions


@dataclass(frozen=True)
class Scan(Task):
    """Commands of SCAN, each equally often, split by "commands", by "length", or by "both".

    Tokens are "start", "end", 13 words and 6 actions. The decoder's row is "start" and the actions,
    filled up with "end" to the longest of the batch; a shorter command is filled up behind its
    words, which `source_padding` masks. ``cutoff`` acts unless ``split_by="commands"``.
    """

    split_by: str = "commands"
    cutoff: int = 22
    name: ClassVar[str] = "scan"
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        self._check_sizes(cutoff=8)
        check_choice("split_by", self.split_by, SPLITS_BY)
        if self.cutoff >= LONGEST:
            raise ValueError(
                f"cutoff should be less than {LONGEST}, so that longer commands are left for "
                f"validation, got {self.cutoff}"
            )

    @property
    def vocab(self) -> int:
        return len(_NAMES)

    @property
    def length(self) -> int:
        return 1 + LONGEST  # "end" is answered, never read

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, _NAMES)

    def commands(self, split: str) -> list[str]:
        """All commands of ``split``, in the order of the grammar."""
        every = _every()
        return [" ".join(every[place][0]) for place in self._places(split)]

    def of(self, commands: Sequence[str]) -> Batch:
        """The batch of these commands, in their order."""
        if isinstance(commands, str) or not len(commands):
            raise ValueError(f"commands should be a list of one command at least, got {commands!r}")
        return self._batch([(tuple(each.split()), tuple(actions(each))) for each in commands])

    def _places(self, split: str) -> np.ndarray:
        check_choice("split", split, SPLITS)
        return _parted(self.split_by, self.cutoff, split)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        every = _every()
        return self._batch([every[place] for place in generator.choice(self._places(split), size)])

    def _batch(self, pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> Batch:
        numbers = [
            ([_IDS[word] for word in words], [_IDS[act] for act in acts]) for words, acts in pairs
        ]
        return read_and_write(numbers, start=START, end=END)

    def _describe(self, batch: Batch) -> Example:
        sentence = '"{}" is to be carried out: {}.'
        return read_and_written(batch, _NAMES, end=END, title="Carry out: {}", sentence=sentence)


def actions(command: str) -> list[str]:
    """What a command means.

    >>> actions("look opposite right after walk")
    ['WALK', 'RTURN', 'RTURN', 'LOOK']
    """
    words = tuple(command.split())
    if words not in _meanings():
        raise ValueError(f"{command!r} is no command of SCAN; one is 'jump around left twice'")
    return list(_meanings()[words])


Phrases = dict[tuple[str, ...], tuple[str, ...]]


def _phrases() -> Phrases:
    """What stands before "twice": 34 phrases with their actions."""
    acts = {verb: (verb.upper(),) for verb in VERBS}
    found: Phrases = {(verb,): acts[verb] for verb in VERBS}
    for verb, own in (*acts.items(), ("turn", ())):
        for side in SIDES:
            turn = (f"{side[0].upper()}TURN",)
            found[verb, side] = turn + own
            found[verb, "opposite", side] = turn + turn + own
            found[verb, "around", side] = 4 * (turn + own)
    return found


@cache
def _meanings() -> Phrases:
    """Every command with its actions, in the order of the grammar."""
    single: Phrases = {}
    for words, acts in _phrases().items():
        single |= {words: acts, (*words, "twice"): 2 * acts, (*words, "thrice"): 3 * acts}
    every = dict(single)
    for one, first in single.items():
        for other, second in single.items():
            every[*one, "and", *other] = first + second
            every[*one, "after", *other] = second + first
    return every


@cache
def _every() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return list(_meanings().items())


@cache
def _lengths() -> np.ndarray:
    return np.array([len(acts) for _, acts in _every()])


@cache
def _hashed() -> dict[str, np.ndarray]:
    """The places of each split, where each command's own words decide."""
    contents = np.array(
        [
            [*(1 + _IDS[word] for word in words), *[0] * (LONGEST_COMMAND - len(words))]
            for words, _ in _every()
        ]
    )
    return {split: np.flatnonzero(in_split(contents, split)) for split in SPLITS}


@cache
def _parted(split_by: str, cutoff: int, split: str) -> np.ndarray:
    """The places of the commands of a split."""
    if split_by == "commands":
        return _hashed()[split]
    longer = _lengths() > cutoff
    if split == "validation":
        return np.flatnonzero(longer)
    shorter = np.flatnonzero(~longer)
    return shorter if split_by == "length" else np.intersect1d(shorter, _hashed()["train"])
