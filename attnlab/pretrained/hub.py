"""Models of the Hugging Face hub where there is a connection, a sentence where there is none.

    from_hub(transformers.AutoModel, "google-bert/bert-base-uncased")

What is on this machine already is loaded without a connection. Environment variables of Hugging
Face (``HF_HUB_OFFLINE``) are respected.
"""

import os
import socket
import threading
from typing import Any

HOST = "huggingface.co"
SECONDS = 2.0


def from_hub(kind: Any, name: str, **options: Any) -> Any:
    """``kind.from_pretrained(name)``: a model, a tokenizer or an image processor.

    Raises ConnectionError, with a sentence, where it is neither on this machine nor to be had
    within two seconds of asking the hub for an answer (a download itself may take longer).
    """
    try:
        return kind.from_pretrained(name, local_files_only=True, **options)
    except OSError:
        pass
    if not reachable():
        raise ConnectionError(
            f"{name} is not on this machine, and the Hugging Face hub cannot be reached; run this "
            "cell again when you are online"
        )
    try:
        return kind.from_pretrained(name, **options)
    except OSError as error:
        first = str(error).strip().splitlines()[0]
        raise ConnectionError(f"{name} could not be loaded from the hub: {first}") from error


def reachable(host: str = HOST, seconds: float = SECONDS) -> bool:
    """Whether the hub answers in this time, the look-up of its name included."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    found: list[bool] = []
    asking = threading.Thread(target=_connect, args=(host, seconds, found), daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(found)


def _connect(host: str, seconds: float, found: list[bool]) -> None:
    try:
        with socket.create_connection((host, 443), timeout=seconds):
            found.append(True)
    except OSError:
        return
