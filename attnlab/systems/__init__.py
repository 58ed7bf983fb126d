"""Published systems, each put together on one page from pages of the shelves and from models.

What stands here adds no mechanism of its own: it says which parts a system is made of, what each
part reads, what is trained and what is frozen, and how many numbers the printed sizes hold.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
