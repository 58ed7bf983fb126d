"""What the cards of the shelf say of what a model learns from, by the tests that ship."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.objectives")

from attnlab.testing.objectives import *  # noqa: E402, F403
