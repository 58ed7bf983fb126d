"""What the cards of the shelf say of compressions, by the tests that ship."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.compression")

from attnlab.testing.compression import *  # noqa: E402, F403
