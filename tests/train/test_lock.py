"""Several processes, one folder: one writes at a time, and a reader sees one whole checkpoint."""

import json
import os
import threading
import time

import pytest
import torch

from attnlab.train import CheckpointError, fit, load_checkpoint, lock, ownership, save_checkpoint
from attnlab.train.lock import LOCK, locked

OPTIONS = {"batch_size": 6, "progress": False}


def test_a_claim_tells_itself_from_any_other_name():
    with ownership.claim() as one, ownership.claim() as two:
        assert one != two
        assert ownership.is_claim(one)
        assert not ownership.is_abandoned(one)
        for name in ("", "mine", "step-00000001", one[:-1], one.upper(), f"{one}-", "0" + one[1:]):
            assert not ownership.is_claim(name) or name == one
    assert ownership.is_abandoned(one)


def dead_claim():
    """The claim of a process that has ended."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with ownership.claim() as name:
            os.write(writing, name.encode())
            os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 1000).decode()


def left_by(claim, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOCK).write_text(lock._owner(claim))


def test_the_lock_of_a_dead_process_is_taken_over_at_once(toy, tmp_path):
    left_by(dead_claim(), tmp_path)
    started = time.monotonic()
    save_checkpoint(tmp_path, toy(), step=1)
    assert time.monotonic() - started < 10
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000001"]


def test_a_zombie_is_dead():
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with ownership.claim() as name:
            os.write(writing, name.encode())
            os._exit(0)
    name = os.read(reading, 1000).decode()
    deadline = time.monotonic() + 30
    while not ownership.is_abandoned(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ownership.is_abandoned(name)
    os.waitpid(child, 0)


def test_another_process_of_the_same_number_is_not_the_owner():
    with ownership.claim() as name:
        place, pid, start, *rest = name.split("-")
        body = "-".join([place, pid, str(int(start or 0) - 1), rest[0]])
        assert ownership.is_abandoned(f"{body}-{ownership._checksum(body)}") == bool(start)


def test_a_lock_that_a_living_process_holds_is_waited_for_and_named(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    save_checkpoint(tmp_path, toy(), step=1)
    before = sorted(os.listdir(tmp_path))
    with ownership.claim() as mine, locked(tmp_path, mine):
        with pytest.raises(CheckpointError, match=rf"Process {os.getpid()} on '.+' has been writ"):
            save_checkpoint(tmp_path, toy(), step=2)
        assert load_checkpoint(tmp_path).step == 1
    assert sorted(os.listdir(tmp_path)) == before
    save_checkpoint(tmp_path, toy(), step=2)


def test_the_lock_of_another_machine_is_taken_over_when_it_does_not_change(
    toy, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "_place", lambda: "0123abcd")
        left_by(dead_claim(), tmp_path)
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    started = time.monotonic()
    save_checkpoint(tmp_path, toy(), step=1)
    assert time.monotonic() - started > 0.3
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000001"]


def test_a_lock_without_owner_was_left_by_a_kill(toy, tmp_path):
    tmp_path.joinpath(LOCK).touch()
    save_checkpoint(tmp_path, toy(), step=1)
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000001"]


def test_a_file_of_the_user_in_the_place_of_the_lock_stays(toy, tmp_path):
    tmp_path.joinpath(LOCK).write_text("mine")
    with pytest.raises(CheckpointError, match="attnlab did not write it"):
        save_checkpoint(tmp_path, toy(), step=1)
    assert tmp_path.joinpath(LOCK).read_text() == "mine"
    assert os.listdir(tmp_path) == [LOCK]


def test_a_second_run_in_the_folder_is_reported(toy, successor, tmp_path):
    """Each would remove what the other has learned."""

    def meddle(state):
        if state.step == 2:
            save_checkpoint(tmp_path, toy(seed=5), step=7)

    with pytest.raises(CheckpointError, match="two runs cannot share a folder"):
        fit(toy(), successor(), 3, folder=tmp_path, save_every=1, callbacks=[meddle], **OPTIONS)
    assert load_checkpoint(tmp_path).step == 7
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000007"]


def test_two_processes_save_and_a_third_reads(script, run, tmp_path):
    """What is read is whole: all tensors and the state carry the number of one save."""
    program = script(
        """
        import json, os, time
        from attnlab.train import load_checkpoint, save_checkpoint
        place, end = sys.argv[1], time.monotonic() + 3

        def save_until_the_end(writer):
            model, count = ToyModel(), 0
            while time.monotonic() < end:
                number = 2 * count + writer
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.fill_(number)
                save_checkpoint(place, model, step=count // 3, state={"number": number})
                count += 1
            assert count > 10, count

        def read_until_the_end():
            reads, writers = 0, set()
            while time.monotonic() < end:
                if not os.path.exists(place + "/latest"):
                    continue
                found = load_checkpoint(place)
                number = found.state["number"]
                assert all((tensor == number).all() for tensor in found.model.values()), number
                assert found.step == number // 2 // 3
                reads, writers = reads + 1, writers | {number % 2}
            return reads, sorted(writers)

        children = []
        for writer in (0, 1):
            if (child := os.fork()) == 0:
                try:
                    save_until_the_end(writer)
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            children.append(child)
        answer = read_until_the_end()
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        print(json.dumps([*answer, len(os.listdir(place))]))
        """
    )
    reads, writers, left = json.loads(run([*program, str(tmp_path / "run")]).splitlines()[-1])
    assert reads > 20
    assert writers == [0, 1]
    assert left == 2


def test_threads_save_into_one_folder(toy, tmp_path):
    errors = []

    def save(seed):
        try:
            for step in range(5):
                save_checkpoint(tmp_path, toy(seed=seed), step=step, state={"seed": seed})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found, model = load_checkpoint(tmp_path), toy(seed=7)
    found.restore(model)
    assert torch.equal(model.head.weight, toy(seed=found.state["seed"]).head.weight)
    assert len(os.listdir(tmp_path)) == 2
