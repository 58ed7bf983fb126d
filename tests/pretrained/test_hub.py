"""Models of the hub: from this machine, from the hub, or a sentence within seconds."""

import socket
import time

import pytest

from attnlab.pretrained import hub
from attnlab.pretrained.hub import from_hub, reachable


class Kind:
    """Stands for a class of transformers: what is here, and what the hub has."""

    def __init__(self, here=(), there=()):
        self.here, self.there, self.calls = here, there, []

    def from_pretrained(self, name, local_files_only=False, **options):
        self.calls.append((local_files_only, options))
        if name in (self.here if local_files_only else self.there):
            return f"the model {name}"
        raise OSError(f"no file of {name}\nand much more")


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: True)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: False)


def test_what_is_here_needs_no_hub(offline):
    kind = Kind(here=["mine"])
    assert from_hub(kind, "mine", revision="main") == "the model mine"
    assert kind.calls == [(True, {"revision": "main"})]


def test_what_is_not_here_comes_from_the_hub(online):
    kind = Kind(there=["theirs"])
    assert from_hub(kind, "theirs", revision="main") == "the model theirs"
    assert kind.calls == [(True, {"revision": "main"}), (False, {"revision": "main"})]


def test_without_a_connection_there_is_a_sentence(offline):
    kind = Kind(there=["theirs"])
    with pytest.raises(
        ConnectionError, match=r"theirs is not on this machine, .* when you are onl"
    ):
        from_hub(kind, "theirs")
    assert kind.calls == [(True, {})]


def test_a_name_that_the_hub_does_not_know(online):
    with pytest.raises(
        ConnectionError, match=r"nothing could not be loaded .* no file of nothing$"
    ):
        from_hub(Kind(), "nothing")


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_the_switch_of_hugging_face_is_respected(value, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: pytest.fail("it asked"))
    assert not reachable()


def test_the_hub_is_asked_and_waited_for_no_longer_than_said(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        real = socket.create_connection
        port = server.getsockname()[1]
        local = ("127.0.0.1", port)
        monkeypatch.setattr(socket, "create_connection", lambda _, timeout: real(local, timeout))
        assert reachable()

    def slow(*given, **options):
        time.sleep(1)
        raise OSError("no answer")

    monkeypatch.setattr(socket, "create_connection", slow)
    before = time.monotonic()
    assert not reachable(seconds=0.1)
    assert time.monotonic() - before < 0.9

    def refused(*given, **options):
        raise OSError("no route")

    monkeypatch.setattr(socket, "create_connection", refused)
    assert not reachable()
