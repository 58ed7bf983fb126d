"""Kernels: attention whose weights are dot products of features, so that sums can go first."""
