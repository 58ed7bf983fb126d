"""What a model learns from: what is hidden, and what must be answered.

A page of this shelf has the role ``objective``: its forms and its module are called as
``(model, batch, generator) -> (sum, count)``, the loss summed over the scored targets and how many
there are. Sums of the parts of a batch add up to that of the whole; means would not. The module
also has the four steps of this call, which ``attnlab.train.fit`` takes one by one:

- ``prepare(batch, generator)``: the batch with what is hidden hidden, and with its targets
- ``answers(model, batch)``: what the model says, mostly logits
- ``loss(answers, batch)``: the sum
- ``right(answers, batch)``: how many of the scored targets are answered rightly

An objective that reads in an order of its own (``orders``) puts a ``Visibility`` on the batch,
which tells the layers of dense attention which token sees which, and where each stands.

An objective may learn something itself. What it needs for a model, such as a head or a teacher, it
builds in ``fitted(model)``; its parameters are trained with the model's, and ``after_step`` is
called after each update.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
