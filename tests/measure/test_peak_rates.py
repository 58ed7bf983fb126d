"""The peak rates of a machine: plausible, above every other call, and threads set back."""

import pytest
import torch

from attnlab.measure import peak_rates as module
from attnlab.measure.peak_rates import PeakRates, peak_rates


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SIDE", 128)
    monkeypatch.setattr(module, "_ELEMENTS", 1 << 14)


def test_flops_and_bytes_come_from_the_fastest_round(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = type("Timing", (), {})
    product, copy = timing(), timing()
    product.seconds, copy.seconds = (0.5, 0.25, 1.0), (0.125, 0.5)  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "compare", lambda *_, **__: [product, copy])
    found = peak_rates()
    assert found.peak == 2 * 128**3 / 0.25
    assert found.bandwidth == 2 * 4 * (1 << 14) / 0.125
    assert found.ridge == found.peak / found.bandwidth


def test_it_measures_and_sets_the_threads_back() -> None:
    before = torch.get_num_threads()
    found = peak_rates(threads=2)
    assert found.threads == 2
    assert torch.get_num_threads() == before
    assert 1e6 < found.peak < 1e16
    assert 1e6 < found.bandwidth < 1e16
    assert isinstance(found, PeakRates)


def test_threads_are_a_number() -> None:
    with pytest.raises(ValueError, match="threads"):
        peak_rates(threads=0)
