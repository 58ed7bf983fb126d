"""What goes with what, by the tests that ship."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.combinations")

from attnlab.testing.combinations import *  # noqa: E402, F403
