"""kill -9 at any moment leaves a checkpoint that loads, and no step already saved is ever lost."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_at_random_moments(script, run, tmp_path: Path):
    """Children are forked, killed without warning and resumed; in the end nothing shows it.

    A checkpoint is written at every step, so most kills fall into the middle of writing one.
    """
    program = script(
        """
        import json, os, random, signal, time, warnings
        from pathlib import Path
        from attnlab.train import load_checkpoint
        warnings.simplefilter("ignore")
        folder, steps, moments = Path(sys.argv[1]), 60, random.Random()

        def train(where, *callbacks):
            options = dict(batch_size=6, accumulate=2, save_every=1, progress=False)
            model = ToyModel(dropout=0.3)
            return fit(model, ToyTask(), steps, folder=where, callbacks=callbacks, **options).rows

        def life():
            "Let a child make two or three steps, then end it at a random moment of the next."
            (told, tell), (heard, allow) = os.pipe(), os.pipe()
            if (child := os.fork()) == 0:
                os.close(told), os.close(allow)
                train(folder, lambda state: (os.write(tell, b"."), os.read(heard, 1)))
                os._exit(0)
            os.close(tell)
            for _ in range(moments.randint(2, 3)):
                started = time.perf_counter()
                if not os.read(told, 1):  # it has come to its end
                    break
                a_step = time.perf_counter() - started
                os.write(allow, b".")
            time.sleep(moments.uniform(0, 1.2 * a_step))
            os.kill(child, signal.SIGKILL)
            os.close(told), os.close(heard), os.close(allow)
            return os.WIFSIGNALED(os.waitpid(child, 0)[1])

        unbroken = train(folder.with_name("unbroken"))
        kills, reached = 0, [0]
        while life():
            kills += 1
            checkpoint = load_checkpoint(folder)
            checkpoint.restore(ToyModel(seed=7))
            assert len(checkpoint.state["rows"]) == checkpoint.step > reached[-1]
            reached.append(checkpoint.step)
            if checkpoint.step == steps:
                break
        rows = train(folder)
        print(json.dumps([kills, [r["loss"] for r in rows],
                          [r["loss"] for r in unbroken], sorted(os.listdir(folder))]))
        """
    )
    output = run([*program, str(tmp_path / "killed")])
    kills, losses, unbroken, left = json.loads(output.splitlines()[-1])
    assert kills >= 10
    assert losses == unbroken
    assert len(losses) == 60
    assert left == ["latest", "step-00000060"]
