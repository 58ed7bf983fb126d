"""Given words as keys."""

from collections.abc import Sequence

import numpy as np

from attnlab_widgets.energy_landscape import EnergyLandscape


def hostile(words: Sequence[str]) -> EnergyLandscape:
    return EnergyLandscape(np.eye(len(words), 2) + 1, names=[*words])
