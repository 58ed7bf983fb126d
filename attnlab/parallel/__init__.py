"""One model or one long text on several processes: attention that is shared, layers that are split.

``launch.in_processes`` starts processes on this machine, from a script, a test or a notebook; under
``torchrun`` each process makes its own ``group.joined()``. Every exchange between processes has a
time limit, and where it passes, the error says which process did not come.

Three ways to share attention over one sequence, each exact, forward and backward:

    ring      every process keeps its queries; keys and values travel from process to process
    ulysses   an all-to-all gives each process all positions of some of the heads, and back
    tree      one query, as in decoding, at the keys of all processes; what is merged is small

All rest on one identity (``merge``): attentions over disjoint sets of keys are combined exactly by
their log-sum-exps.

What each process sends is counted (``Group.sent``) and stands beside the formula of its page.

``tensor.parallelize`` divides the layers of a model by heads and by hidden units. ``steps`` writes
out the exchanges of a training step; ``plan`` has the formulas of all divisions of a model, and
goes through those of a cluster.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
