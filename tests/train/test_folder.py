"""Whose files are whose: only what attnlab wrote is removed, and every byte of it is checked."""

import json
import os
import random
import shutil
import stat

import pytest
import torch

from attnlab.train import CheckpointError, fit, load_checkpoint, save_checkpoint

OPTIONS = {"batch_size": 6, "progress": False}


def contents(folder):
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def users_things(folder):
    """Names that look like attnlab's, with files that must not be removed."""
    for name in ("step-by-step", "step-00000001", "step-00000009", ".writing-mine", "step-copy"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_bytes(name.encode())
        (folder / name / "thoughts.txt").write_bytes(b"mine")
    (folder / ".writing-step-00000002").mkdir()
    (folder / ".writing-notes").write_bytes(b"mine")
    (folder / "step-.txt").write_bytes(b"mine")
    return contents(folder)


def test_folders_of_the_user_survive(toy, successor, tmp_path):
    """Every way of saving, into a folder where each name of ours is taken."""
    before = users_things(tmp_path)
    fit(toy(), successor(), 2, folder=tmp_path, save_every=1, **OPTIONS)
    fit(toy(), successor(), 3, folder=tmp_path, **OPTIONS)
    fit(toy(), successor(), 3, folder=tmp_path, **OPTIONS)
    fit(toy(), successor(), 1, folder=tmp_path, resume=False, **OPTIONS)
    save_checkpoint(tmp_path, toy(), step=9)
    assert before.items() <= contents(tmp_path).items()
    assert (tmp_path / ".writing-step-00000002").is_dir()
    assert load_checkpoint(tmp_path).path.name == "step-00000009.1"


def test_what_the_user_adds_to_a_checkpoint_or_copies_from_it_survives(toy, tmp_path):
    first = save_checkpoint(tmp_path, toy(), step=1)
    shutil.copytree(first, tmp_path / "step-best")
    shutil.copytree(first, elsewhere := tmp_path.parent / "elsewhere" / first.name)
    (tmp_path / "step-00000000").symlink_to(elsewhere)
    (first / "thoughts.txt").write_bytes(b"mine")
    mine = contents(tmp_path / "step-best") | contents(elsewhere)
    save_checkpoint(tmp_path, toy(), step=2)
    save_checkpoint(tmp_path, toy(), step=3)
    assert mine.items() <= (contents(tmp_path) | contents(elsewhere)).items()
    assert contents(first) == {str(first / "thoughts.txt"): b"mine"}
    assert (tmp_path / "step-00000000").is_symlink()


def test_a_foreign_checkpoint_is_refused_and_never_removed(toy, successor, tmp_path):
    """The advice that the error gives must not cost the user anything."""
    before = users_things(tmp_path)
    (tmp_path / "latest").write_text("step-00000009\n")
    with pytest.raises(CheckpointError, match=r"has no 'manifest.json'.*resume=False") as caught:
        fit(toy(), successor(), 2, folder=tmp_path, **OPTIONS)
    assert "touches nothing else" in str(caught.value)
    fit(toy(), successor(), 2, folder=tmp_path, resume=False, save_every=1, **OPTIONS)
    assert before.items() <= contents(tmp_path).items()


def test_a_checkpoint_of_an_earlier_attnlab(toy, successor, tmp_path):
    """It had no manifest, and a pointer of one word."""
    path = save_checkpoint(tmp_path, toy(), step=3)
    (path / "manifest.json").unlink()
    (tmp_path / "latest").write_text("step-00000003\n")
    before = contents(path)
    with pytest.raises(CheckpointError, match=r"earlier attnlab.*neither digests.*load_file"):
        fit(toy(), successor(), 5, folder=tmp_path, **OPTIONS)
    fit(toy(), successor(), 3, folder=tmp_path, resume=False, **OPTIONS)
    assert contents(path) == before
    assert load_checkpoint(tmp_path).path.name == "step-00000003.1"


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_file_of_the_user_named_latest_is_not_replaced(toy, successor, tmp_path, kind, resume):
    """Told before anything is trained."""
    place, other = tmp_path / "run" / "latest", tmp_path / "other"
    place.parent.mkdir()
    other.write_bytes(b"news")
    match kind:
        case "file":
            place.write_bytes(b"news")
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to(other)
    steps = []
    with pytest.raises(CheckpointError, match=r"was not written by attnlab.*move it"):
        fit(
            toy(),
            successor(),
            2,
            folder=place.parent,
            resume=resume,
            callbacks=[lambda state: steps.append(state.step)],
            **OPTIONS,
        )
    with pytest.raises(CheckpointError, match=r"was not written by attnlab.*move it"):
        save_checkpoint(place.parent, toy(), step=1)
    assert steps == []
    assert os.listdir(place.parent) == ["latest"]
    assert kind == "folder" or place.read_bytes() == b"news"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
def test_files_respect_the_umask(toy, successor, tmp_path, mask):
    before = os.umask(mask)
    try:
        fit(toy(), successor(), 2, folder=tmp_path / "run", save_every=1, **OPTIONS)
    finally:
        os.umask(before)
    written = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert len(written) == 8
    for path in written:
        usual = 0o777 if path.is_dir() else 0o666
        assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(usual & ~mask), path


def test_no_bit_flips_unnoticed(toy, successor, weights, tmp_path):
    """200 flips over all files of a checkpoint: each is refused, and model and file stay."""
    fit(toy(dropout=0.3), successor(), 3, folder=tmp_path, **OPTIONS)
    paths = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert len(paths) == 6
    generator = random.Random(3)
    model = toy(dropout=0.3, seed=5)
    before = weights(model)
    for flip in range(200):
        path = paths[flip % len(paths)]
        whole = path.read_bytes()
        place = generator.randrange(8 * len(whole))
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"cannot be read.*It was left as it is"):
            fit(model, successor(), 5, folder=tmp_path, **OPTIONS)
        assert path.read_bytes() == changed
        path.write_bytes(whole)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())
    assert len(fit(model, successor(), 5, folder=tmp_path, **OPTIONS).rows) == 5


def test_files_of_two_checkpoints_do_not_mix(toy, tmp_path):
    """Each file is whole, but the weights are those of another save."""
    first = save_checkpoint(tmp_path / "a", toy(seed=0), step=3)
    second = save_checkpoint(tmp_path / "b", toy(seed=5), step=3)
    shutil.copy(second / "model.safetensors", first / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'model.safetensors' has been damaged or changed"):
        load_checkpoint(tmp_path / "a")
    shutil.copy(second / "manifest.json", first / "manifest.json")
    with pytest.raises(CheckpointError, match="its manifest is not the one that 'latest' names"):
        load_checkpoint(tmp_path / "a")


def test_the_manifest_lists_every_file(toy, tmp_path):
    path = save_checkpoint(tmp_path, toy(), step=3)
    manifest = json.loads((path / "manifest.json").read_text())
    assert {*manifest["files"], "manifest.json"} == set(os.listdir(path))
    assert (manifest["name"], manifest["step"]) == ("step-00000003", 3)


def test_an_optimizer_of_another_precision_is_refused(toy, weights, tmp_path):
    """PyTorch would round its moments to the model's precision without a word."""
    model, other = toy(), toy(seed=5)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([[3, 5]])).sum().backward()
    optimizer.step()
    for slots in optimizer.state.values():
        slots["exp_avg"] = slots["exp_avg"].bfloat16()
    save_checkpoint(tmp_path, model, optimizer, step=1)
    before, fresh = weights(other), torch.optim.AdamW(other.parameters())
    with pytest.raises(CheckpointError, match=r"exp_avg' is .* bfloat16 there and .* float32 here"):
        load_checkpoint(tmp_path).restore(other, fresh)
    assert not fresh.state
    assert all(torch.equal(value, before[name]) for name, value in weights(other).items())


@pytest.mark.parametrize(
    "spoil", [lambda state: state[:, :-1], lambda state: state.long(), lambda state: state * 0]
)
def test_wrong_generators_are_found_before_the_model_changes(
    toy, successor, weights, tmp_path, spoil
):
    fit(toy(), successor(), 2, folder=tmp_path, **OPTIONS)
    stored, model, donor = load_checkpoint(tmp_path), toy(seed=5), toy()
    stored.restore(donor)
    generators = {name: spoil(state).contiguous() for name, state in stored.generators.items()}
    save_checkpoint(tmp_path, donor, step=2, state=stored.state, generators=generators)
    before = weights(model)
    with pytest.raises(CheckpointError, match="generator"):
        fit(model, successor(), 3, folder=tmp_path, **OPTIONS)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


# --- a real death at every call that reaches the disk ---------------------------------------------


def test_a_death_at_any_call_leaves_the_old_or_the_new(script, run, tmp_path):
    """Children end (`os._exit`) at their 1st, 2nd, … call, so Python tidies up nothing of theirs.

    The next save must find the lock and the drafts abandoned, and leave nothing behind.
    """
    program = script(
        """
        import io, json, os, shutil
        from pathlib import Path
        from attnlab.train import folder, load_checkpoint, save_checkpoint
        place = Path(sys.argv[1])
        names = ("mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir")
        CALLS = [(os, name) for name in names] + [(io, "open"), (folder, "_store")]
        os.fsync = lambda descriptor: None  # a death of the process alone loses nothing
        save_checkpoint(place / "old", ToyModel(), step=7)

        def dying(call, limit):
            def wrapper(*args, **options):
                dying.count += 1
                if dying.count > limit:
                    os._exit(9)
                return call(*args, **options)
            return wrapper

        outcomes = []
        for limit in range(400):
            where = place / str(limit)
            shutil.copytree(place / "old", where)
            if (child := os.fork()) == 0:
                dying.count = 0
                for owner, name in CALLS:
                    setattr(owner, name, dying(getattr(owner, name), limit))
                save_checkpoint(where, ToyModel(seed=5), step=8)
                os._exit(0)
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert ended in (0, 9), ended
            read = load_checkpoint(where)
            read.restore(model := ToyModel(seed=9))
            new = read.step == 8
            expected = ToyModel(seed=5 if new else 0)
            assert torch.equal(model.head.weight, expected.head.weight)
            outcomes.append(new)
            save_checkpoint(where, ToyModel(), step=11)
            assert sorted(os.listdir(where)) == ["latest", "step-00000011"], os.listdir(where)
            if ended == 0:
                break
        print(json.dumps(outcomes))
        """
    )
    outcomes = json.loads(run([*program, str(tmp_path)]).splitlines()[-1])
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes)
    assert 30 < len(outcomes) < 400
