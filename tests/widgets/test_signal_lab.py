"""SignalLab: kernel, map, states and output are the library's; unstable poles are refused."""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.signal_lab import SignalLab
from attnlab_widgets.signal_lab import presets as signal_presets
from attnlab_widgets.signal_lab.picture import cut, extents
from attnlab_widgets.words import two

from attnlab.core import state_space
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.convolution.lightweight_convolution import (
    LightweightConvolution,
    LightweightOptions,
)
from attnlab.mechanisms.recurrence.s4d import S4D, S4DOptions
from tests.widgets.stored import NEAR_FLOAT32, assert_fresh, write

KERNELS = [one["name"] for one in signal_presets.kernels()]
SIGNALS = [one["name"] for one in signal_presets.signals()]
STATE = ("signal", "poles", "weights", "step", "rule", "skip", "taps")


def s4d() -> S4D:
    torch.manual_seed(0)
    return S4D(3, options=S4DOptions(state=10, discretization="bilinear", longest=0.4))


def widgets() -> list[SignalLab]:
    short = [0.5, -1.0, 2.0, 0.0, 0.25, 1.5, -0.75]
    own = SignalLab(short, torch.tensor([-0.7 + 1.3j, -0.1 - 9.0j, -2.0 + 0.0j]))
    own.step, own.skip = 0.5, -0.3
    own.weights = [[0.4, 1.1], [-0.9, 0.2], [0.6, -0.7]]
    other = SignalLab(short, "S4D-Inv")
    other.rule, other.step = "bilinear", 1.7
    still = SignalLab(short, torch.tensor([0j, 3j]))
    return [
        *(SignalLab("noise", name) for name in KERNELS),
        *(SignalLab(name) for name in SIGNALS if name != "noise"),
        own, other, still, SignalLab(short, [0.3]), SignalLab(short, [1.0] * 11),
        SignalLab("noise", s4d()),
    ]  # fmt: skip


def case(one: SignalLab) -> dict[str, Any]:
    decays = [] if one.taps else torch.view_as_real(one.system()[0]).tolist()
    return {
        **{name: getattr(one, name) for name in STATE},
        "decays": decays,
        "kernel": one.impulse_response().tolist(),
        "states": one.states().real.mT.tolist(),
        "output": one.output().tolist(),
        "spectrum": one.spectrum().tolist(),
        "said": one.description(),
    }


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_a_kernel_that_nobody_trained_says_so_while_it_is_shown(tmp_path: Path) -> None:
    lab = SignalLab("noise", s4d(), untrained=True)

    def drawn() -> bool:
        return ">untrained<" in lab.save_svg(tmp_path / "signal.svg").read_text()

    assert lab.shows_untrained
    assert drawn()
    lab.step = 0.3  # the same kernel on another scale of time
    assert lab.shows_untrained
    lab.skip += 0.5  # changed by hand: nobody's any more
    assert not lab.shows_untrained
    assert not drawn()
    assert not SignalLab("noise", s4d()).shows_untrained
    with pytest.raises(ValueError, match="goes with kernels that are given, not with 'one pole'"):
        SignalLab("noise", untrained=True)
    with pytest.raises(TypeError, match="`untrained` should be True or False, got 1"):
        SignalLab("noise", s4d(), untrained=1)  # type: ignore[arg-type]
    with pytest.raises(traitlets.TraitError, match="read-only"):
        lab.untrained = False


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("signals.json", _short(cases()), NEAR_FLOAT32)


def _short(value: Any) -> Any:
    """What follows from the state needs no more than 12 digits; the state is kept as it is."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {key: one if key in STATE else _short(one) for key, one in value.items()}
    return value


def test_the_convolution_is_the_recurrence() -> None:
    for one in widgets():
        u, K = torch.tensor(one.signal, dtype=torch.float64), one.impulse_response()
        n = len(u)
        loops = [sum(K[i - j] * u[j] for j in range(i + 1)) for i in range(n)]
        torch.testing.assert_close(one.output(), torch.stack(loops), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(one.matrix() @ u, one.output(), rtol=1e-9, atol=1e-12)
        if one.taps:
            taps = torch.tensor(one.taps, dtype=torch.float64)
            torch.testing.assert_close(one.states() @ taps, one.output(), rtol=1e-9, atol=1e-12)
            continue
        decay, drive = one.system()
        C = torch.view_as_complex(torch.tensor(one.weights, dtype=torch.float64))
        x = u[None, :, None]
        parts = (decay[None], drive[None], C[None])
        out, _ = state_space.recurrent(x, state_space.initial_state(x, len(C)), *parts)
        expected = out[0, :, 0] + one.skip * u
        torch.testing.assert_close(one.output(), expected, rtol=1e-9, atol=1e-12)
        read = 2 * (one.states() @ C).real + one.skip * u
        torch.testing.assert_close(read, one.output(), rtol=1e-9, atol=1e-12)


def test_the_spectrum_is_what_waves_are_multiplied_by() -> None:
    one = SignalLab("noise", "moving average")
    found = one.spectrum()
    assert found.shape == (129,)
    torch.testing.assert_close(found[0], one.impulse_response().sum())
    assert found[32] < 1e-12, "a mean of eight removes what turns once in eight tokens"
    k = torch.arange(64, dtype=torch.float64)
    wave = SignalLab((torch.cos(torch.pi * 10 / 128 * k)).tolist(), "moving average").output()
    assert abs(float(wave[20:].abs().max()) - float(found[10])) < 0.02


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_a_trained_layer_has_the_map_that_the_lens_finds(rule: Any) -> None:
    torch.manual_seed(1)
    options = S4DOptions(state=6, discretization=rule, longest=0.4)
    layer = S4D(3, form="naive", options=options).double().eval()
    maps = mixing_matrix(layer, torch.randn(1, 13, 3, dtype=torch.float64)).matrix[0]
    lab = SignalLab([0.0] * 13, layer)
    assert [one["name"] for one in lab._kernels[:4]] == [
        "channel 0", "channel 1", "channel 2", KERNELS[0],
    ]  # fmt: skip
    for channel in range(3):
        told = lab._kernels[channel]
        with lab.hold_trait_notifications():
            for name in STATE[1:]:
                setattr(lab, name, told[name])
        torch.testing.assert_close(lab.matrix(), maps[channel], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("normalize", [True, False])
def test_heads_of_a_lightweight_convolution(normalize: bool) -> None:
    torch.manual_seed(2)
    options = LightweightOptions(kernel=5, normalize=normalize)
    layer = LightweightConvolution(6, 2, causal=True, options=options).double().eval()
    maps = mixing_matrix(layer, torch.randn(1, 11, 6, dtype=torch.float64)).matrix[0]
    lab = SignalLab([0.0] * 11, layer)
    torch.testing.assert_close(lab.matrix(), maps[0], rtol=1e-6, atol=1e-7)
    lab.taps = lab._kernels[1]["taps"]
    torch.testing.assert_close(lab.matrix(), maps[1], rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="make it with causal=True"):
        SignalLab("step", LightweightConvolution(6, 2))
    with pytest.raises(TypeError, match="class S4D or LightweightConvolution, got Linear"):
        SignalLab("step", torch.nn.Linear(3, 3))


def test_the_sentence_tells_how_modes_fade_and_turn() -> None:
    one = SignalLab([1.0] * 5)
    assert one.description() == (
        "One pole, steps of 0.2 (zero-order hold): its mode fades to half in 6.9 tokens, it turns "
        "once in 15.7 tokens. The kernel sums to 0.81."
    )
    one.poles = [[0, 0]]
    assert "its mode does not fade, it does not turn. A pole on the imaginary axis never fades" in (
        one.description()
    )
    one.poles, one.step = [[-1e-5, 200]], 0.1
    assert "fades to half in more than 9,999 tokens" in one.description()
    assert "One mode turns by more than half a circle in a step" in one.description()
    one.rule = "bilinear"
    assert "half a circle" not in one.description()
    assert "the slowest mode fades" in SignalLab("step", "S4D-Lin").description()
    assert "One tap: every token reads itself alone." in SignalLab("step", [0.3]).description()
    assert "itself and the token before it" in SignalLab("step", "difference").description()
    assert "itself and the 7 tokens before it, and none older. The kernel sums to 1.00." in (
        SignalLab("step", "moving average").description()
    )


def test_recorded_signals_are_those_of_scikit_learn() -> None:
    import sklearn.datasets
    from PIL import Image

    folder = Path(sklearn.datasets.__file__).parent
    with gzip.open(folder / "data/digits.csv.gz", "rt") as file:
        first = [float(word) for word in file.readline().split(",")[:64]]
    found = {one["name"]: np.array(one["signal"]) for one in signal_presets.signals()}
    assert np.allclose(found["a digit, row by row"] * 16, first, atol=0.01)
    with Image.open(folder / "images/china.jpg") as photograph:
        row = np.array(photograph.convert("L"))[250].reshape(64, 10).mean(1)
    assert np.allclose(found["a row of a photograph"] * 128 + 128, row, atol=1.5)


def test_states_are_set_and_refused_in_sentences() -> None:
    one = SignalLab([1, 2, 3, 4, 5], "S4D-Lin")
    assert one.token == 2
    one.poles = [-0.5, -1 - 2j, -3, -1j]
    assert one.poles == [[-0.5, 0.0], [-1.0, -2.0], [-3.0, 0.0], [0.0, -1.0]]
    one.weights = np.array([1j, 2, 3, 4])
    one.poles = torch.tensor([[-1.0, 2.0]] * 4)
    one.token = 4
    one.signal = torch.ones(4)
    assert one.token == 3
    one.taps = (1, 2)
    one.taps = []
    assert one.impulse_response().shape == (4,)
    for name, value, words in (
        ("poles", [[-1, 2]], "`poles` should hold 4 numbers, as many as there are weights, got 1"),
        ("weights", [[1, 2]], "`weights` should hold 4 numbers, as many as there are poles, got 1"),
        ("poles", [[0.5, 1]] * 4, "a pole has the real part 0.5: its response grows without bound"),
        ("poles", [[1.0]] * 4, "`poles` should be 1 to 32 complex numbers, or pairs (r, 2)"),
        ("poles", [[-1, 2000]] * 4, "`poles` has parts beyond ±1000"),
        ("poles", [[-1, np.nan]] * 4, "`poles`"),
        ("signal", [1, 2, 3], "`signal` should be 4 to 128 numbers, got 3"),
        ("signal", [0.0] * 129, "`signal` should be 4 to 128 numbers, got 129"),
        ("signal", [0, 0, 0, 101], "`signal` has numbers beyond ±100"),
        ("taps", [0.0] * 129, "`taps` should be 1 to 128 numbers, got 129"),
        ("step", 0, "`step` should be 0.0001 to 10, got 0"),
        ("step", 11, "`step` should be 0.0001 to 10, got 11"),
        ("skip", 101, "`skip` has numbers beyond ±100"),
        ("token", 4, "`token` should be 0 to 3 here, got 4"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    for arguments, words in (
        (("chirps",), "there is no signal 'chirps'; did you mean"),
        (("step", "S4D-Legs"), "there is no kernel 'S4D-Legs'; did you mean"),
        (("step", torch.tensor([0.1 + 1j])), "a pole has the real part 0.1"),
        (("step", torch.ones(33) * -1j), "1 to 32 complex numbers"),
        (("step", None), "`kernel` should be a list, got None"),
        (("step", [0.0] * 129), "`kernel` should be 1 to 128 numbers, got 129"),
        (("step", S4D(2, options=S4DOptions(state=66))), "1 to 32 complex numbers"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(words)):
            SignalLab(*arguments)
    with pytest.raises(ValueError, match=re.escape("`token` should be 0 to 63 here, got 64")):
        SignalLab(token=64)


def test_kernels_given_as_numbers() -> None:
    one = SignalLab("impulse", [[0.5, 0.25], [1.0, -1.0]])
    assert one.taps == [0.5, 0.25]
    assert [each["name"] for each in one._kernels[:2]] == ["kernel 0", "kernel 1"]
    assert len(SignalLab("impulse", torch.ones(20, 3))._kernels) == 16 + len(KERNELS)
    assert SignalLab("impulse", np.array([1.0, 2.0]))._kernels[0]["name"] == "as given"
    out = one.output()
    assert out[8:11].tolist() == pytest.approx([0.5, 0.25, 0.0], abs=1e-12)
    poles = SignalLab("impulse", [-0.5 + 1j, -0.2 + 0j])
    assert poles.poles == [[-0.5, 1.0], [-0.2, 0.0]]
    assert poles.weights == [[1.0, 0.0]] * 2
    assert extents([[-3.0, -20.0]]) == (26.0, 6.0)


def test_what_a_token_takes_of_itself_is_cut_where_it_would_hide_the_rest() -> None:
    assert cut([-1.714, 0.2, -0.1]) == [-0.2, 0.2, -0.1]
    assert cut([0.5, 0.2, -0.3]) == [0.5, 0.2, -0.3]
    assert cut([3.0, 0.0, 0.0]) == [3.0, 0.0, 0.0]
    lab = SignalLab("chirp")
    assert "not to scale" not in lab.still().svg("")
    lab.skip = -2.0
    shown = lab.still().svg("")
    assert f"itself {two(float(lab.impulse_response()[0]))}, not to scale" in shown
    assert "diagonal not to scale" in shown


def test_the_picture_shows_the_map_and_the_poles() -> None:
    one = SignalLab("impulse", "S4D-Lin")
    parts = one.still().parts
    maps = [part["levels"] for kind, part in parts if kind == "map"]
    assert [levels.shape for levels in maps] == [(64, 64), (4, 64)]
    assert (np.triu(maps[0], 1) == np.triu(np.full((64, 64), 20), 1)).all(), "nothing above"
    assert len(np.unique(maps[0])) > 8
    assert sum(kind == "disc" for kind, _ in parts) == 8
    one.taps = [0.5, 0.5]
    parts = one.still().parts
    assert sum(kind == "disc" for kind, _ in parts) == 0
    assert any(part.get("content") == "Taps" for _, part in parts)
    one.theme = "dark"
    assert "#16181d" in one.still().svg("")


if __name__ == "__main__":
    write("signals.json", _short(cases()))
