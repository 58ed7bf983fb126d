"""tbd"""


def test_a():
    pass
