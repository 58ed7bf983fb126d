"""What the cards say of feed-forward layers, joins and depth, by the tests that ship."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.architecture")

from attnlab.testing.architecture import *  # noqa: E402, F403
