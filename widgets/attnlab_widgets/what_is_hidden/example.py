"""A sentence, as every objective of the catalogue hands it to a model."""

from collections.abc import Sequence

from attnlab_widgets.what_is_hidden import WhatIsHidden


def hostile(words: Sequence[str]) -> WhatIsHidden:
    return WhatIsHidden([*words, *words])
