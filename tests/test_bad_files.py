"""Files of others stay as they are, what is stored is checked, and no command begins unasked.

Every case ends in a sentence of attnlab's own (``tests/bad_calls.py`` says what that is).
"""

import copy
import errno
import json
import os
import runpy
import struct
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import attnlab
import docs.__main__ as site
from attnlab import pretrained
from attnlab.core import files
from attnlab.core.card import Card
from attnlab.experiments.__main__ import main as experiments_main
from attnlab.figures.maps import heat_map
from attnlab.measure import rows
from attnlab.measure.__main__ import main as measure_main
from attnlab.models.generate import generate
from attnlab.models.storage import DIGEST
from attnlab.models.tiny import TinyTransformer
from attnlab.train import CheckpointError, load_checkpoint, lock, save_checkpoint
from tests.bad_calls import REFUSE, Call, fault
from tools import course
from tools.course.__main__ import main as course_main
from tools.notebooks import main as notebooks_main
from tools.readme import Lesson

ROOT = Path(__file__).parents[1]
DEEP = "[" * 200_000


def model() -> TinyTransformer:
    return TinyTransformer(300, dim=12, heads=2, layers=1, max_len=16, tie=True)


def of_card(card: Card) -> nn.Module:
    return attnlab.build(card.name, dim=12, heads=2, causal=True)


def content(folder: Path) -> dict[str, Any]:
    """All that is in a folder, links not followed."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes()
        for p in found
    }


# ---- commands

COMMANDS = sorted(
    ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__main__")
    for base, room in ((ROOT, "attnlab"), (ROOT / "widgets", "attnlab_widgets"), (ROOT, "docs"))
    for path in (base / room).rglob("*.py")
    if '\nif __name__ == "__main__"' in path.read_text(encoding="utf-8")
)
HARMLESS = {
    "tools.course.page": "Without arguments",
    "tools.readme": "Without arguments",
    "docs": "or into",
}
"""They write where nothing but their own is, and say so when they are asked for help."""


@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_arguments_says_what_it_can_do(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [command, *["--help"] * (command in HARMLESS)])
    monkeypatch.setattr(sys, "stdin", StringIO(""))
    monkeypatch.setattr(os, "replace", None)  # nothing is written
    with pytest.raises(SystemExit) as end:
        runpy.run_module(command, run_name="__main__")
    shown, said = capsys.readouterr()
    if command in HARMLESS:
        assert HARMLESS[command] in shown
    else:
        assert "usage:" in f"{said}{end.value.code}"
        assert end.value.code != 0


# ---- folders that a command fills


def of_course(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int | str:
    monkeypatch.setattr(course.__main__, "lessons", lambda root: [Lesson("1_a.ipynb", "?", 1, 1)])
    monkeypatch.setattr(course.__main__, "make", lambda made, lessons, seed: fill(made))
    return course_main([str(folder), *more])


def of_site(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int | str | None:
    monkeypatch.setattr(site, "build", lambda made: fill(made))
    monkeypatch.setattr(sys, "argv", ["docs", str(folder), *more])
    try:
        return site.main()
    except SystemExit as end:
        return end.code


TEXT = "as it is written"


def fill(made: Path) -> int:
    for name in ("a/page.txt", "index.txt"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(TEXT)
    return 0


FILLED = [of_course, of_site]
edited = {
    "a file edited": lambda folder: (folder / "a/page.txt").write_text("mine"),
    "a file replaced by a link": lambda folder: link(folder / "a/page.txt", folder / "../of/x"),
    "a folder replaced by a link": lambda folder: link(folder / "a", folder / "../of"),
    "a file replaced by a folder": lambda folder: refolder(folder / "index.txt"),
    "a manifest of brackets": lambda folder: (folder / files.MANIFEST).write_text(DEEP),
    "a manifest of another": lambda folder: manifest(folder, {"written by": "x", "files": {}}),
    "a manifest of what is outside": lambda folder: manifest(folder, {"files": {"../of/x": "1"}}),
}


def link(path: Path, target: Path) -> None:
    path.unlink() if path.is_file() else path.rename(path.with_name("moved"))
    path.symlink_to(target.resolve())


def refolder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def manifest(folder: Path, change: dict[str, Any]) -> None:
    path = folder / files.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize("change", edited.values(), ids=edited)
@pytest.mark.parametrize("command", FILLED)
def test_a_folder_keeps_what_the_command_did_not_write(
    command, change, tmp_path, monkeypatch, capsys
):
    (tmp_path / "of").mkdir()
    (tmp_path / "of/x").write_text("others'")
    folder = tmp_path / "made"
    assert not command(folder, monkeypatch)
    (folder / "own.txt").write_text("mine")
    assert not command(folder, monkeypatch)
    change(folder)
    monkeypatch.setattr(sys.modules[__name__], "TEXT", "as it is written now")
    before = content(tmp_path)
    said = command(folder, monkeypatch)
    assert len(f"{said} {capsys.readouterr().err}".split()) > 8
    assert said not in (0, None)
    assert content(tmp_path) == before
    again = command(folder, monkeypatch, "--overwrite")
    assert bool(again) is (change is not edited["a file edited"])
    kept = {name: text for name, text in before.items() if name in ("of/x", "made/own.txt")}
    assert kept.items() <= content(tmp_path).items()


@pytest.mark.parametrize("command", FILLED)
def test_a_folder_that_was_full_before_keeps_what_is_in_it(command, tmp_path, monkeypatch):
    for name in (".buildinfo", "index.txt"):
        (tmp_path / name).write_text("of another site")
    before = content(tmp_path)
    assert command(tmp_path, monkeypatch)
    assert command(tmp_path, monkeypatch, "--overwrite")
    assert content(tmp_path) == before


@pytest.mark.parametrize("command", FILLED)
@pytest.mark.parametrize("name", ["file", "file/inside", "n" * 300])
def test_a_folder_that_cannot_be_one(command, name, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    assert command(tmp_path / name, monkeypatch)
    assert content(tmp_path) == {"file": b"mine"}


def test_only_what_is_not_made_any_more_is_removed_and_told_before(tmp_path, monkeypatch, capsys):
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "folder"
    for made in (old, new):
        fill(made)
    (old / "a/page.txt").rename(old / "a/gone.txt")
    (new / "index.txt").write_text("new")
    files.Delivery(old, folder, "me", clear=True).carry_out()
    (folder / "a/own.txt").write_text("mine")
    later = files.Delivery(new, folder, "me", clear=True)
    told = later.listed().splitlines()
    assert told == ["removed: a/gone.txt", "new: a/page.txt", "replaced: index.txt"]
    later.carry_out()
    assert set(content(folder)) == {files.MANIFEST, "a/own.txt", "a/page.txt", "index.txt"}
    assert files.Delivery(new, folder, "me").listed() == f"{folder} is up to date"


def test_a_course_without_lessons_says_where_to_run_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(course.__main__, "ROOT", tmp_path)  # as in a wheel
    with pytest.raises(SystemExit):
        course_main([str(tmp_path / "out")])
    assert "run this in a clone of the repository" in capsys.readouterr().err
    assert content(tmp_path) == {}


# ---- files that a caller names

WRITERS: dict[str, Callable[[Any], object]] = {
    "model.save": lambda path: model().save(path),
    "save_svg": lambda path: heat_map(torch.eye(3), title="A map").save_svg(path),
    "save_html": lambda path: heat_map(torch.eye(3), title="A map").save_html(path),
    "write_file": lambda path: files.write_file(path, "text"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_that_cannot_be_written(write, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("mine")
    bad = [
        None,
        3,
        tmp_path,
        *(tmp_path / n for n in ("pipe", "no/file", "n" * 300, "n\0", "file/n")),
    ]
    faults = [fault(Call("a file", str(path), lambda p=path: write(p), REFUSE)) for path in bad]
    assert not any(faults), faults

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    assert not fault(Call("a full disk", "", lambda: write(tmp_path / "file"), REFUSE))
    assert content(tmp_path) == {"file": b"mine"}


# ---- what is stored


def flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize("name", pretrained.names())
def test_a_shipped_model_has_a_digest_and_no_bit_of_it_may_flip(name, tmp_path):
    whole = (pretrained.FOLDER / f"{name}.safetensors").read_bytes()
    (header,) = struct.unpack("<Q", whole[:8])
    assert DIGEST in json.loads(whole[8 : 8 + header])["__metadata__"]
    for at in (8 + header, (8 + header + len(whole)) // 2, len(whole) - 1):
        (tmp_path / "m").write_bytes(flipped(whole, at))
        with pytest.raises(ValueError, match="damaged or changed since it was written"):
            TinyTransformer.load(tmp_path / "m")


def test_a_model_saved_by_an_earlier_version_loads(tmp_path):
    made = model()
    made.save(tmp_path / "m")
    tensors = load_file(tmp_path / "m")
    save_file(tensors, tmp_path / "old", metadata={"config": json.dumps(made.config)})
    again = TinyTransformer.load(tmp_path / "old").state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("name", ["latest", "step-00000001/manifest.json"])
@pytest.mark.parametrize("damage", ["pipe", "brackets"])
def test_a_checkpoint_that_cannot_be_read(name, damage, tmp_path):
    save_checkpoint(tmp_path, nn.Linear(2, 3), step=1)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name) if damage == "pipe" else (tmp_path / name).write_text(DEEP)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path)


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a lock that leads nowhere": lambda folder: (folder / lock.LOCK).symlink_to("nowhere"),
    "a lock that is a pipe": lambda folder: os.mkfifo(folder / lock.LOCK),
    "a takeover that is not empty": lambda folder: (folder / lock.TAKEOVER / "a").mkdir(
        parents=True
    ),
    "a takeover that is a file": lambda folder: (folder / lock.TAKEOVER).touch(),
    "a takeover that leads nowhere": lambda folder: (folder / lock.TAKEOVER).symlink_to("nowhere"),
}


@pytest.mark.parametrize("make", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_stands_in_the_way_of_a_checkpoint_is_named(make, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    monkeypatch.setattr(lock, "_UNWRITTEN", 0.0)
    make(tmp_path)
    if not os.path.lexists(tmp_path / lock.LOCK):
        (tmp_path / lock.LOCK).touch()  # left by a kill, to be taken over
    with pytest.raises(CheckpointError, match="stands where the lock of the checkpoints would be"):
        save_checkpoint(tmp_path, nn.Linear(2, 3), step=1)


def test_a_takeover_that_is_dated_ahead_was_left_by_a_kill(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_UNWRITTEN", 0.0)
    (tmp_path / lock.TAKEOVER).mkdir()
    (tmp_path / lock.LOCK).touch()
    os.utime(tmp_path / lock.TAKEOVER, (4e9, 4e9))
    save_checkpoint(tmp_path, nn.Linear(2, 3), step=1)
    assert load_checkpoint(tmp_path).step == 1


# ---- the rows of a command

SMALL = ["--dim", "12", "--heads", "3", "--threads", "1", "--lengths", "32", "--passes", "forward"]


def row(**change: Any) -> str:
    known = {"mechanism": "linear", "peer": None, "family": "kernelized", "form": "naive"}
    known |= {"dim": 12, "heads": 3, "causal": False, "options": {}, "n": 32, "pass": "forward"}
    known |= {"seconds": [1.0], "baseline_seconds": None, "median": 1.0, "reason": None}
    known |= {"device": "cpu", "dtype": "float32", "threads": 1, "seed": 0, "machine": {}}
    return json.dumps(known | change)


OTHERS = {
    "a text": "to do",
    "two lines": "to do\nand this",
    "JSON": "{}",
    "a list": "[1]\n",
    "brackets": DEEP,
    "no text": b"\xff\xfe\x00",
    "a row without n": row(n=None),
    "a row of no time": row(seconds=["a"]),
    "a row of a time below zero": row(seconds=[-1.0]),
    "a row of no machine": row(machine=3),
    "a counted row without counts": row(**{"pass": "counted", "seconds": None}),
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_a_file_of_others_is_not_written_to(text, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = content(tmp_path)
    for main, what in ((measure_main, ["sweep", "full"]), (measure_main, ["start"])):
        assert main([*what, *SMALL * (what[0] == "sweep"), "--json", str(file)]) == 2
    assert experiments_main(["needle", "--quick", "--json", str(file)]) == 2
    assert notebooks_main([str(ROOT / "notebooks"), "--json", str(file)]) == 2
    assert measure_main(["compare", str(file), str(file)]) == 2
    assert capsys.readouterr().err.count(str(file)) == 5
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["", "no/file", "n" * 300])
def test_a_file_that_cannot_be_one(name, tmp_path, capsys):
    place = str(tmp_path / name)
    assert measure_main(["sweep", "full", *SMALL, "--json", place]) == 2
    assert experiments_main(["needle", "--quick", "--json", place]) == 2
    assert measure_main(["compare", place, place]) == 2
    assert len(capsys.readouterr().err.split()) > 15
    assert content(tmp_path) == {}


def test_a_row_that_was_cut_short_is_measured_again(tmp_path):
    file = tmp_path / "rows"
    file.write_text(f'{row()}\n{row()[:70]}\n{row(n=64)}\n{{"mech')
    assert [each["n"] for each in rows.read(file)] == [32, 64]


def test_a_second_sweep_is_kept_from_the_file(tmp_path, capsys):
    file = tmp_path / "rows"
    with rows.alone(file):
        assert measure_main(["sweep", "full", *SMALL, "--json", str(file)]) == 2
    assert "another sweep is writing" in capsys.readouterr().err
    assert rows.read(file) == []


def test_a_full_disk_ends_a_sweep_in_a_sentence(tmp_path, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    with pytest.raises(files.Unwritten, match="takes no more rows"):
        rows.append(Path("/dev/full"), {})


# ---- a state of another dtype

CAUSAL = [card for card in attnlab.cards() if card.mixes and card.causal != "never"]
DECODING = [card for card in CAUSAL if hasattr(of_card(card), "step")]


@pytest.mark.parametrize("card", DECODING, ids=lambda card: card.name)
def test_a_state_of_another_dtype_is_refused(card):
    layer = of_card(card)
    x = torch.randn(2, 3, 12)
    _, state = copy.deepcopy(layer).double().step(x.double(), None)
    assert not fault(Call(card.name, "", lambda: layer.step(x[:, :1], state), REFUSE))


# ---- ids in small integers


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_new_ids_do_not_wrap_in_the_prompts_dtype(dtype):
    made = model().eval()
    with torch.no_grad():
        made.embedding.weight[:256] = 0  # tied, so that some greater id has the greatest logit
    prompt = torch.tensor([[1, 2], [3, 4]])
    wide = generate(made, prompt, 3, temperature=0)
    assert (wide > 255).any()
    found = generate(made, prompt.to(dtype), 3, temperature=0)
    assert torch.equal(found, wide)
    assert found.dtype == torch.int64
