"""Recurrence: a state of fixed size is read and changed token by token.

All that later tokens can know of earlier ones stands in the state, so decoding costs the same for
every token. Linear states (retention, lightning, S4D, H3, GSS, RWKV, the selective scan, Mamba-2,
log-linear attention, mLSTM, gated linear attention, the delta rules) also have a form that computes
all positions at once, and weights that learn (TTT) one that computes a mini-batch; LSTM, GRU and
the bistable cells must be run in order.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
