"""Many cases in one test: what is a fault of one, and what ends them all."""

import pytest
import pytest_timeout

from tests.faults import Faults


def test_whatever_a_case_raises_is_its_fault() -> None:
    faults = Faults()
    for name, error in {"one": KeyError("x"), "two": SystemExit(2), "three": None}.items():
        with faults.of(name):
            if error:
                raise error
    with faults.of("four"), pytest.raises(ValueError, match="x"):
        pass
    assert list(faults) == ["one", "two", "four"]
    with pytest.raises(AssertionError, match="two: SystemExit: 2\nfour: Failed: DID NOT RAISE"):
        faults.none()


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        pytest.exit.Exception("enough"),
        pytest.fail.Exception(pytest_timeout.PYTEST_FAILURE_MESSAGE % 900),
    ],
)
def test_what_ends_a_test_ends_its_cases(error: BaseException) -> None:
    """Else a second case that hangs would hang for ever, as pytest sets one alarm for a test."""
    with pytest.raises(type(error)), Faults().of("one"):
        raise error
