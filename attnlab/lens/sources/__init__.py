"""What a person has to look at, in one form: layers of maps, and the tokens that they are about.

`layers_of` reads a recording, the outputs of another library or arrays; `inputs` says how a model
reads what it is given (a text, an image, a sound, tokens), and `tokens` which layer reads which.

    from attnlab.lens.sources.layers import layers_of
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
