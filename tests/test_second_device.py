"""Everything runs on any device: proved on a pretend one, where no GPU is at hand.

The device (``tests/second_device.py``) stays registered for the life of a process, so each worker
has a process beside it that runs the cases of its tests, one when it is asked for.
"""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch.utils.backend_registration as backend_registration

from attnlab import catalog
from tests.second_device_cases import cases, serve, words_of

pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch cannot pretend to have a second device",
)


class Process:
    """Runs one case after the other, as a worker's tests ask for them; begun anew if it ends.

    On Linux it is a fork of the worker, which has imported all that it needs.
    """

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self.running: tuple[BaseProcess, Connection] | None = None

    def fault(self, name: str) -> str:
        """What is wrong with a case; "" where nothing is."""
        self.running = self.running or self._begun()
        answer = None
        try:
            self.running[1].send(name)
            answer = self.running[1].recv()
        except (EOFError, ConnectionError):
            pass
        finally:  # also where the time of the test is up
            if not answer:
                self.end()
        if not answer:
            return f"the process of the pretend device died: {self.errors.read_text()[-3000:]}"
        asked, fault = answer
        assert asked == name
        return str(fault)

    def _begun(self) -> "tuple[BaseProcess, Connection]":
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        mine, its = context.Pipe()
        process = context.Process(target=_serve, args=(its, mine, self.errors), daemon=True)
        with warnings.catch_warnings():  # threads of the worker: the fork calls nothing of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        its.close()
        return process, mine

    def end(self) -> None:
        if self.running:
            process, connection = self.running
            process.kill()
            process.join()
            connection.close()
            self.running = None


def _serve(its: Connection, mine: Connection, errors: Path) -> None:
    mine.close()
    with errors.open("w") as file:
        os.dup2(file.fileno(), 2)
    serve(its)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("second_device") / "errors.txt")
    yield process
    process.end()


def test_words_are_those_of_a_variant_but_for_its_numbers() -> None:
    longformer, multi_query = catalog.card("longformer"), catalog.card("multi_query")
    assert words_of(longformer, 0) == words_of(longformer, 1)
    assert words_of(multi_query, 0) != words_of(multi_query, 1)


@pytest.mark.parametrize("name", cases())
def test_runs_on_a_second_device(name: str, process: Process) -> None:
    fault = process.fault(name)
    assert not fault, f"{name}\n{fault}"
