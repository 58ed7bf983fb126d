"""Convolutions: each position takes from the others by how far away they are.

The weights depend on the distance, not on what the two tokens hold: a short learned filter
(lightweight and dynamic convolution), a filter as long as the text (Hyena), or the fixed waves of a
Fourier transform (FNet). Some pages add attention to it, or attend to what a convolution has read.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
