"""Mixing without attention: Fourier transforms, convolutions and state spaces."""
