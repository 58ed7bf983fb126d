"""Pictures from plain arrays, rows and cards; never from models.

``maps``      one attention map, every head at once, a map over training steps
``curves``    loss curves, measured costs against n, costs claimed by cards
``examples``  what a task looks like: tokens in a strip, an image as a sequence
``receptive_field``  the pixels that one pixel of an image sees, for several mechanisms
``picture``   what each of them returns: a plotly figure with a description in words
``theme``     light, dark or auto, said once or per figure
"""
