"""Checkpoints: what is written comes back bit for bit, and nothing can be lost on the way."""

import ast
import json
import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import attnlab.train
from attnlab.train import CheckpointError, fit, load_checkpoint, save_checkpoint
from attnlab.train import folder as module
from attnlab.train.folder import FILES, POINTER, write
from attnlab.train.manifest import FORMAT, MANIFEST
from attnlab.train.ownership import claim

OPTIONS = {"batch_size": 6, "accumulate": 2, "evaluate_every": 4, "progress": False}


def stop_after(step):
    return lambda state: state.step < step


def exact(rows):
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in rows]


def latest(folder: Path) -> Path:
    """The checkpoint that counts, by the pointer's own words."""
    return folder / (folder / "latest").read_text().split()[0]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def abandoned_draft(folder: Path) -> Path:
    """What a run leaves that was killed while it wrote."""
    with claim() as name:
        draft = folder / f".writing-{name}"
        draft.mkdir(parents=True)
        (draft / "model.safetensors").write_bytes(b"half")
    return draft


@pytest.mark.parametrize("tie", [True, False])
def test_resumed_losses_are_those_of_an_unbroken_run(toy, successor, weights, tmp_path, tie):
    """With dropout, accumulation, evaluation; the resuming model starts from other weights."""
    whole, first, second = (toy(dropout=0.4, tie=tie, seed=s) for s in (0, 0, 5))
    unbroken = fit(whole, successor(), 11, **OPTIONS)
    torch.manual_seed(17)  # the caller's generator has no influence
    fit(first, successor(), 11, folder=tmp_path, callbacks=[stop_after(5)], **OPTIONS)
    assert load_checkpoint(tmp_path).step == 5
    torch.manual_seed(19)
    resumed = fit(second, successor(), 11, folder=tmp_path, **OPTIONS)
    assert exact(resumed.rows) == exact(unbroken.rows)
    torch.testing.assert_close(weights(second), weights(whole), rtol=0, atol=0)
    assert (second.head.weight is second.embedding.weight) == tie


def test_a_finished_run_is_loaded_and_returned(toy, successor, weights, tmp_path):
    first, second = toy(), toy(seed=5)
    rows = fit(first, successor(), 3, folder=tmp_path, **OPTIONS).rows
    before = files(tmp_path)
    assert fit(second, successor(), 3, folder=tmp_path, **OPTIONS).rows == rows
    torch.testing.assert_close(weights(second), weights(first), rtol=0, atol=0)
    assert files(tmp_path) == before


def test_a_run_may_grow_and_may_begin_anew(toy, successor, tmp_path):
    fit(toy(), successor(), 3, folder=tmp_path, **OPTIONS)
    grown = fit(toy(), successor(), 5, folder=tmp_path, **OPTIONS).rows
    assert [row["step"] for row in grown] == [1, 2, 3, 4, 5]
    assert load_checkpoint(tmp_path).state["schedule"]["steps"] == 5
    anew = fit(toy(), successor(), 5, folder=tmp_path, resume=False, **OPTIONS).rows
    assert anew[0]["loss"] == grown[0]["loss"]
    assert anew[3]["learning_rate"] == grown[3]["learning_rate"]
    assert anew[1]["learning_rate"] != grown[1]["learning_rate"]  # it was a shorter run then
    assert load_checkpoint(tmp_path).step == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_only_the_last_checkpoint_is_kept(toy, successor, tmp_path):
    abandoned_draft(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    seen = []

    def look(state):
        seen.append(sorted(p.name for p in tmp_path.iterdir()))

    fit(toy(), successor(), 5, folder=tmp_path, save_every=2, callbacks=[look], **OPTIONS)
    assert seen[1] == ["latest", "notes.txt", "step-00000002"]
    assert seen[3] == ["latest", "notes.txt", "step-00000004"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "notes.txt", "step-00000005"]


def two_checkpoints(folder, monkeypatch, *args):
    """A run of 3 steps that was killed before it removed the checkpoint of step 2."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_sweep", lambda folder: None)
        fit(*args, 3, folder=folder, save_every=2, **OPTIONS)
    assert {"step-00000002", "step-00000003"} < set(os.listdir(folder))


@pytest.mark.parametrize("steps", [3, 5])
def test_what_a_kill_has_left_is_gone_after_a_resumed_run(
    toy, successor, tmp_path, steps, monkeypatch
):
    """Also of a run that was finished, and has nothing more to write."""
    two_checkpoints(tmp_path, monkeypatch, toy(), successor())
    (tmp_path / "notes.txt").write_text("mine")
    draft = abandoned_draft(tmp_path)
    seen = []

    def look(state):
        seen.append(sorted(p.name for p in tmp_path.iterdir()))

    assert draft.exists()
    rows = fit(toy(), successor(), steps, folder=tmp_path, callbacks=[look], **OPTIONS).rows
    assert len(rows) == steps
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["latest", "notes.txt", f"step-{steps:08d}"]
    assert all(names == ["latest", "notes.txt", "step-00000003"] for names in seen)


def test_a_checkpoint_that_cannot_be_used_leaves_all_as_it_was(
    toy, successor, tmp_path, monkeypatch
):
    two_checkpoints(tmp_path, monkeypatch, toy(), successor())
    before = files(tmp_path)
    with pytest.raises(CheckpointError):
        fit(toy(), successor(), 2, folder=tmp_path, **OPTIONS)
    assert files(tmp_path) == before


def test_tied_weights_are_stored_once_and_stay_tied(toy, successor, tmp_path):
    fit(toy(), successor(), 2, folder=tmp_path, **OPTIONS)
    stored = load_checkpoint(tmp_path)
    assert "embedding.weight" in stored.model
    assert "head.weight" not in stored.model
    model = toy(seed=5)
    stored.restore(model)
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.head.weight, stored.model["embedding.weight"])
    with pytest.raises(CheckpointError, match=r"lacks 'head.weight' \(13, 5\) float32"):
        stored.restore(toy(tie=False))


class Odd(nn.Module):
    """Views of one tensor, an empty one, whole numbers, half precision: all must come back."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.arange(14.0).view(7, 2)
        self.register_buffer("left", both[:, 0])
        self.register_buffer("right", both[:, 1])
        self.register_buffer("none", torch.zeros(0, 3))
        self.register_buffer("nothing", torch.zeros(0, 3))
        self.register_buffer("count", torch.tensor(11))
        self.brief = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))


def test_any_tensor_comes_back(tmp_path):
    save_checkpoint(tmp_path, Odd(), step=3, state={"words": "ok"})
    model = Odd()
    for tensor in model.state_dict().values():
        tensor.zero_()
    stored = load_checkpoint(tmp_path)
    stored.restore(model)
    for name, tensor in Odd().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
        assert model.state_dict()[name].dtype == tensor.dtype
    assert stored.step == 3
    assert stored.state["words"] == "ok"


def test_a_compiled_model_has_the_same_names(toy, tmp_path):
    model = toy()
    wrapped = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(wrapped.parameters())
    model(torch.tensor([[3, 5]])).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path, wrapped, optimizer, step=1)
    other = toy(seed=5)
    load_checkpoint(tmp_path).restore(other, torch.optim.AdamW(other.parameters()))
    assert torch.equal(other.head.weight, model.head.weight)


CALLS = [
    *((os, name) for name in ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir")),
    *((module, name) for name in ("_store", "_remove", "_publish")),
]


@pytest.mark.parametrize("break_after", [False, True])
def test_an_end_at_any_call_leaves_the_old_or_the_new(
    toy, tmp_path, monkeypatch, weights, break_after
):
    """The process ends at the 1st, 2nd, … call that reaches the disk, before or after it."""

    class End(BaseException):
        pass

    old, new = toy(seed=0), toy(seed=5)
    outcomes = []
    for limit in range(100):
        folder = tmp_path / str(limit)
        save_checkpoint(folder, old, step=7)
        count = 0

        def dying(call, limit=limit):
            def wrapper(*args, **options):
                nonlocal count
                count += 1
                if count > limit and not break_after:
                    raise End
                result = call(*args, **options)
                if count > limit:
                    raise End
                return result

            return wrapper

        with monkeypatch.context() as patch:
            for owner, name in CALLS:
                patch.setattr(owner, name, dying(getattr(owner, name)))
            try:
                save_checkpoint(folder, new, step=7 + limit % 2)
                ended = False
            except End:
                ended = True
        stored, restored = load_checkpoint(folder), toy(seed=9)
        stored.restore(restored)
        outcomes.append(stored.path.name != "step-00000007")
        torch.testing.assert_close(
            weights(restored), weights(new if outcomes[-1] else old), rtol=0, atol=0
        )
        # Whatever was left lying about, the next save succeeds and tidies up.
        save_checkpoint(folder, new, step=11)
        assert sorted(os.listdir(folder)) == ["latest", "step-00000011"]
        if not ended:
            break
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes)
    assert len(outcomes) > 10


def test_a_full_disk_keeps_the_old_one(toy, tmp_path, monkeypatch):
    save_checkpoint(tmp_path, toy(), step=7)
    before = files(tmp_path)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        CheckpointError, match=r"step 11 could not be written .*No space left .*intact"
    ):
        save_checkpoint(tmp_path, toy(seed=5), step=11)
    assert files(tmp_path) == before


def test_files_reach_the_disk_before_the_pointer(toy, tmp_path, monkeypatch):
    """The order is the promise: files, draft folder, rename, parent, replace, parent."""
    order = []
    fsync, rename, replace = os.fsync, os.rename, os.replace
    monkeypatch.setattr(os, "fsync", lambda d: (order.append(name_of(d)), fsync(d))[1])
    monkeypatch.setattr(os, "rename", lambda a, b: (order.append("rename"), rename(a, b))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b))[1])

    def name_of(descriptor):
        inode = os.fstat(descriptor).st_ino
        places = [tmp_path, *tmp_path.rglob("*")]
        return next(path.name for path in places if path.stat().st_ino == inode)

    save_checkpoint(tmp_path, toy(), step=1)
    assert set(order[:4]) == set(FILES)
    assert order[4:6] == [MANIFEST, POINTER]
    assert order[6].startswith(".writing-")
    assert order[7:] == ["rename", tmp_path.name, "replace", tmp_path.name]


# --- checkpoints that cannot be used --------------------------------------------------------------


@pytest.fixture
def trained(toy, successor, tmp_path):
    fit(toy(), successor(), 3, folder=tmp_path, **OPTIONS)
    return tmp_path


def changed(folder: Path, **state: object) -> None:
    """The same checkpoint with another state, as attnlab itself would have written it."""
    path = latest(folder)
    parts = {name: (path / name).read_bytes() for name in FILES}
    parts["state.json"] = json.dumps(json.loads(parts["state.json"]) | state).encode()
    write(folder, load_checkpoint(folder).step, parts.items())


def refused(call, folder, match):
    before = files(folder)
    with pytest.raises(CheckpointError, match=match) as caught:
        call()
    assert files(folder) == before
    return str(caught.value)


def test_a_model_that_does_not_fit_is_left_alone(toy, successor, trained, weights):
    model = toy(dim=7)
    before = weights(model)
    message = refused(
        lambda: fit(model, successor(), 3, folder=trained, **OPTIONS),
        trained,
        r"'embedding.weight' is \(13, 5\) float32 there and \(13, 7\) float32 here; .* more",
    )
    assert "step 3" in message
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_another_precision_of_weights_does_not_fit(toy, trained):
    refused(
        lambda: load_checkpoint(trained).restore(toy().double()),
        trained,
        r"float32 there and \(13, 5\) float64",
    )


def test_a_misfit_of_the_optimizer_changes_nothing(toy, trained, weights):
    stored, model = load_checkpoint(trained), toy(seed=5)
    model.embedding.weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    before = weights(model)
    refused(
        lambda: stored.restore(model, optimizer), trained, "does not fit this optimizer.*embedding"
    )
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_another_task(toy, successor, trained):
    refused(
        lambda: fit(toy(), successor(name="copy"), 3, folder=trained, **OPTIONS),
        trained,
        "belongs to another task: name 'successor' there and 'copy' here",
    )
    refused(
        lambda: fit(toy(), successor(vocabulary="[1]"), 3, folder=trained, **OPTIONS),
        trained,
        "another task: vocabulary ",
    )


def test_fewer_steps_than_done(toy, successor, trained):
    refused(
        lambda: fit(toy(), successor(), 2, folder=trained, **OPTIONS),
        trained,
        "already done 3 steps, more than steps=2",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 0.01}, "learning_rate 0.003 there and 0.01 here"),
        ({"seed": 5}, "seed 0 there and 5 here"),
        ({"batch_size": 4}, "batch_size × processes 6 there and 4 here"),
        ({"clip": None}, "clip 1.0 there and None here"),
        ({"warmup": 1}, "warmup None there and 1 here"),
        ({"weight_decay": 0}, "weight_decay 0.01 there and 0.0 here"),
    ],
)
def test_other_settings(toy, successor, trained, change, words):
    call = lambda: fit(toy(), successor(), 5, folder=trained, **OPTIONS | change)  # noqa: E731
    assert "resume=False" in refused(call, trained, words)


@pytest.mark.parametrize(
    "name", ["model", "optimizer", "generators", "state.json", "manifest.json", "latest"]
)
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "rubbish"])
def test_a_damaged_checkpoint_is_reported_and_left_alone(toy, successor, trained, name, damage):
    path = trained / "latest"
    if name != "latest":
        path = latest(trained) / (name if "." in name else f"{name}.safetensors")
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
        if name == "latest":  # the furthest complete checkpoint is found without it
            assert load_checkpoint(trained).step == 3
            return
    else:
        path.write_bytes(
            {"truncated": whole[:-7], "empty": b"", "rubbish": b"\xff\x00" * 50}[damage]
        )
    call = lambda: fit(toy(), successor(), 5, folder=trained, **OPTIONS)  # noqa: E731
    assert "It was left as it is" in refused(call, trained, "cannot be read")
    fit(toy(), successor(), 5, folder=trained, resume=False, **OPTIONS)
    assert load_checkpoint(trained).step == 5


def test_a_pointer_cannot_lead_elsewhere(trained, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (trained / "latest").write_text(f"../{other.name} {'0' * 64}\n")
    refused(lambda: load_checkpoint(trained), trained, "which names no checkpoint")
    (trained / "latest").write_text(f"step-00000007 {'0' * 64}\n")
    refused(
        lambda: load_checkpoint(trained), trained, "names 'step-00000007', which does not exist"
    )


def test_a_later_format(trained):
    path = latest(trained) / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT + 1}))
    refused(
        lambda: load_checkpoint(trained),
        trained,
        f"its format is {FORMAT + 1}, this attnlab reads {FORMAT}",
    )


def test_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="There is no checkpoint in"):
        load_checkpoint(tmp_path / "nowhere")


class Extra(nn.Linear):
    def get_extra_state(self):
        return {"seven": 7}


def test_state_that_is_no_tensor(tmp_path):
    with pytest.raises(CheckpointError, match=r"keeps '_extra_state', a dict.*tensors only"):
        save_checkpoint(tmp_path, Extra(2, 3), step=1)


def test_no_pickle():
    """By ast, not by grep: what is imported and called, and nothing else."""
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    sources = list(Path(attnlab.train.__file__).parent.glob("*.py"))
    assert len(sources) > 5
    for source in sources:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & forbidden, source
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, source
                assert (node.module or "") != "torch" or not {"load", "save"} & {
                    a.name for a in node.names
                }
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                assert name not in {"torch.load", "torch.save"}, source
                assert not node.attr.endswith(("_object", "_object_list")), (
                    f"{source}: {name} pickles"
                )


def test_nothing_is_unpickled_in_practice(toy, successor, tmp_path, monkeypatch):
    import pickle

    def refuse(*args, **options):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    fit(toy(), successor(), 2, folder=tmp_path, **OPTIONS)
    assert len(fit(toy(), successor(), 3, folder=tmp_path, **OPTIONS).rows) == 3


@pytest.mark.parametrize("lost", [{"rows": None}, {"rows": 3}, {"tokens": None}])
def test_a_checkpoint_without_its_history_is_not_gone_on_from(
    toy, successor, trained, weights, lost
):
    changed(trained, **lost)
    model = toy()
    before = weights(model)
    call = partial(fit, model, successor(), 5, folder=trained, **OPTIONS)
    refused(call, trained, "lacks the history of its run")
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())
