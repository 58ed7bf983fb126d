"""Background work for widgets: repeated requests are merged, at a limited rate."""

import atexit
import threading
import weakref
from collections.abc import Callable

LAST = 20
"""Seconds that Python's end waits for work in progress: a thread that is stopped within PyTorch
aborts the process."""
_all: "weakref.WeakSet[Throttled]" = weakref.WeakSet()


@atexit.register
def _end() -> None:
    there = list(_all)
    for one in there:
        one.close()
    for one in there:
        one.settle(LAST)


class Throttled:
    """Runs `work` in the background after it was asked to.

    Requests that come during a run are answered together by one more run, at least `every` seconds
    later, so that the page is not flooded. There is no thread while nothing is to be done. `work`
    must catch its own errors.
    """

    def __init__(self, work: Callable[[], None], every: float) -> None:
        self._work, self._every = work, every
        self._state = threading.Condition()
        self._asked = self._busy = self._closed = False
        _all.add(self)

    def ask(self) -> None:
        with self._state:
            self._asked = not self._closed
            if self._asked and not self._busy:
                self._busy = True
                threading.Thread(target=self._run, daemon=True, name="attnlab-look").start()

    def close(self) -> None:
        """Start no further run; a run in progress ends by itself."""
        with self._state:
            self._closed, self._asked = True, False
            self._state.notify_all()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; False if that took longer than `timeout`."""
        with self._state:
            return self._state.wait_for(lambda: not self._busy, timeout)

    def _run(self) -> None:
        while self._wanted():
            self._work()
            with self._state:
                self._state.wait_for(lambda: self._closed, self._every)

    def _wanted(self) -> bool:
        with self._state:
            self._busy, self._asked = self._asked, False
            self._state.notify_all()
            return self._busy
