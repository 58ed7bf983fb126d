r"""A model that is too large for one device: what each division holds, sends and leaves idle.

With p devices, N parameters, T tokens in a step, and numbers of 2 bytes, each device sends in one
training step, in numbers:

    data        2 (p-1)/p N                   an all-reduce of the gradients
    sharded     x (p-1)/p N                   reduce-scatters of gradients, all-gathers of weights
    tensor      8 (p-1)/p T dim each layer    four all-reduces of activations, two of them backward
    pipeline    2 T dim                       activations to the next stage, gradients back
    experts     4 (p-1)/p k (T/p) dim a layer  two all-to-alls forward, two backward; k experts each
    context     ``ring.bytes_sent``, ``ulysses.numbers_sent``

Parameters that are on every device have the all-reduce of ``data`` as well: all of them under
``context``, those of ``Model.beside_experts`` under ``experts``.

The tokens of ``data``, ``sharded``, ``experts`` and ``context`` are divided; those of ``tensor``
and ``pipeline`` are not. With s stages and m microbatches a pipeline's step has 2 (m + s - 1)
slots, and each stage is idle in (s-1)/(m+s-1) of them.

Adam in mixed precision holds 2 bytes of weights, 2 of gradients and 12 of float32 numbers (weights
and two moments) for each parameter. Sharded among p devices, from the right: 1 divides the 12, 2
also the gradients, 3 also the weights. Gradients that are held divided are reduced after every
microbatch, and weights that are held divided are gathered for its forward and again for its
backward pass. So with m microbatches x is 2 in stage 1, m + 1 in stage 2 and 3 m in stage 3; and
one layer at a time is whole (``whole_layer_held``).

``plans`` goes through all ways to cut a cluster into tensor × pipeline × data. Its seconds are
floors by these formulas: nothing overlaps, but products run at the given rate and links at theirs.

Sources: Patarasuk and Yuan, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*,
JPDC 69 (2009) (the factor 2 (p-1)/p of a ring); Xu et al. 2020, arXiv 2004.13336 (weight-update
sharding); Rajbhandari et al., *ZeRO*, SC 2020, arXiv 1910.02054, sections 3 (16 bytes) and 7 (what
is sent: with all three divided 1.5 times as much); Shoeybi et al., *Megatron-LM*, 2019, arXiv
1909.08053, section 3; Huang et al., *GPipe*, NeurIPS 2019, arXiv 1811.06965, section 2; Lepikhin et
al., *GShard*, 2020, arXiv 2006.16668; Narayanan et al., SC 2021, arXiv 2104.04473, sections 2 and
3; activations: Korthikanti et al. 2022, arXiv 2205.05198, section 4.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

from attnlab.core.arguments import check_flag, check_positive
from attnlab.core.integers import check_integer
from attnlab.parallel import tensor

BYTES = 2
"""Of a weight, a gradient or an activation (bfloat16 or float16)."""

STATES = (2, 2, 12)
"""Bytes for each parameter: weights, gradients, and what Adam holds in float32."""

STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Model:
    """The sizes of a transformer, of which the matrices are counted.

    Biases, norms and position tables are left out. The output matrix is the embedding.

    experts, chosen: feed-forward layers beside one another, and how many of them a token is sent
        to; a router is a matrix (dim, experts).
    """

    layers: int
    dim: int
    heads: int
    vocab: int
    hidden: int
    experts: int = 1
    chosen: int = 1
    gates: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "gates":
                check_integer(f"`{field.name}`", getattr(self, field.name), at_least=1)
        check_flag("gates", self.gates)
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} cannot be divided among {self.heads} heads")
        if self.chosen > self.experts:
            raise ValueError(f"chosen={self.chosen} of only {self.experts} experts")

    @property
    def expert(self) -> int:
        """Numbers in the matrices of one feed-forward layer."""
        return (3 if self.gates else 2) * self.dim * self.hidden

    @property
    def layer(self) -> int:
        """Numbers in the matrices of one layer."""
        return self._layer(self.experts)

    @property
    def parameters(self) -> int:
        """Numbers in all matrices."""
        return self._with(self.experts)

    @property
    def beside_experts(self) -> int:
        """Numbers in the matrices that are on every device where the experts are divided:
        attention, routers and the embedding."""
        return self.parameters - self.layers * self.experts * self.expert

    @property
    def used(self) -> int:
        """Numbers in the matrices that one token is multiplied by."""
        return self._with(self.chosen)

    def _with(self, experts: int) -> int:
        return self.layers * self._layer(experts) + self.vocab * self.dim

    def _layer(self, experts: int) -> int:
        router = self.dim * self.experts if self.experts > 1 else 0
        return 4 * self.dim**2 + experts * self.expert + router

    def flops(self, tokens: int, n: int, *, again: bool = True) -> int:
        """Operations of one training step on texts of n tokens: 2 for each multiply-add, backward
        twice the forward pass.

        again: the forward pass is computed a second time, so that only inputs of layers are kept.
        The n × n products count in full, as in ``models.counts``.
        """
        forward = 2 * self.used * tokens + 4 * self.layers * self.dim * n * tokens
        return (4 if again else 3) * forward


@dataclass(frozen=True)
class Cluster:
    """Equal devices, in machines.

    memory: bytes of one device.
    flops: operations a second that a device reaches in large products, which is below its peak.
    inside, between: bytes a second that a device sends to others in its machine, and out of it.
    """

    devices: int
    machine: int
    memory: float
    flops: float
    inside: float
    between: float

    def __post_init__(self) -> None:
        for name in ("devices", "machine"):
            check_integer(f"`{name}`", getattr(self, name), at_least=1)
        for name in ("memory", "flops", "inside", "between"):
            check_positive(name, getattr(self, name))
        if self.devices % min(self.machine, self.devices):
            raise ValueError(
                f"{self.devices} devices do not fill machines of {self.machine}; use a multiple"
            )


# ---- numbers that each device sends in one step


def data_sent(numbers: int, devices: int) -> int:
    """An all-reduce of the gradients of all parameters."""
    return 2 * _others(numbers, devices)


def sharded_sent(numbers: int, devices: int, stage: int = 1, microbatches: int = 1) -> int:
    """Reduce-scatters of gradients and all-gathers of weights, one of each in stages 0 and 1.

    In stage 2 no device keeps all gradients between microbatches, so that each microbatch has a
    reduce-scatter of its own; in stage 3 also two all-gathers, since none keeps all weights.
    """
    m = check_integer("`microbatches`", microbatches, at_least=1)
    exchanges = (2, 2, m + 1, 3 * m)[_stage(stage)]
    return exchanges * _others(numbers, devices)


def tensor_sent(model: Model, tokens: int, devices: int, *, again: bool = False) -> int:
    """Four all-reduces for each layer, as Megatron-LM has them; two more if the forward pass is
    computed again. PyTorch sends more backward (``tensor.numbers_sent``)."""
    _, p = _whole(tokens, devices)
    forward, _ = tensor.numbers_sent(1, tokens, model.dim, model.layers, p)
    return (3 if again else 2) * forward


def pipeline_sent(model: Model, tokens: int) -> int:
    """By a stage that has one before and one after it."""
    return 2 * check_integer("`tokens`", tokens, at_least=1) * model.dim


def experts_sent(model: Model, tokens: int, devices: int) -> int:
    """Four all-to-alls for each layer, if the tokens of each device are spread evenly over the
    devices; ``tokens`` are those of all devices."""
    _, p = _whole(tokens, devices)
    if tokens % p:
        raise ValueError(f"{tokens} tokens cannot be divided among {p} devices")
    return 4 * model.layers * _others(model.chosen * (tokens // p) * model.dim, p)


def _others(numbers: int, devices: int) -> int:
    """What travels round a ring: all parts but one."""
    numbers, p = _whole(numbers, devices)
    return (p - 1) * numbers // p


def _whole(numbers: int, devices: int) -> tuple[int, int]:
    return (
        check_integer("the count of numbers", numbers, at_least=1),
        check_integer("`devices`", devices, at_least=1),
    )


def _stage(stage: int) -> int:
    check_integer("`stage`", stage)
    if stage not in STAGES:
        raise ValueError(f"`stage` should be 0 (nothing sharded), 1, 2 or 3, got {stage}")
    return stage


# ---- what a device holds


class States(NamedTuple):
    """Bytes on one device."""

    weights: float
    gradients: float
    adam: float


def held(numbers: int, devices: int = 1, stage: int = 0) -> States:
    """Bytes of weights, gradients and Adam's numbers on each device, of ``numbers`` parameters."""
    numbers, p = _whole(numbers, devices)
    whole = len(STATES) - _stage(stage)
    return States(*(numbers * x / (1 if i < whole else p) for i, x in enumerate(STATES)))


def states_held(numbers: int, devices: int = 1, stage: int = 0) -> float:
    """The three parts of ``held`` together."""
    return sum(held(numbers, devices, stage))


def whole_layer_held(model: Model, *, devices: int, stage: int, parts: int = 1) -> float:
    """Bytes of the layer that is whole for a moment, beside what ``held`` counts: in stage 2 its
    gradients until they are reduced, in stage 3 also its weights, which have been gathered.

    devices: among which the states are sharded; on one of them nothing is gathered.
    parts: devices that divide the layer by tensor parallelism.
    The embedding is taken for the layer where it is larger. Layers that are gathered ahead of time
    would come to it.
    """
    _, p = _whole(1, devices)
    check_integer("`parts`", parts, at_least=1)
    largest = max(model.layer, model.vocab * model.dim)
    whole = sum(STATES[i] for i in range(2) if i >= len(STATES) - _stage(stage))
    return whole * largest / parts if p > 1 else 0.0


def activations_held(model: Model, n: int, *, parts: int = 1, layers: int, waiting: int) -> float:
    """Bytes of activations, for texts of n tokens one at a time: the inputs of ``layers`` layers of
    each text that waits for its backward pass, and one layer in full.

    Section 4 of Korthikanti et al., equation 2: a layer with an MLP of 4 dim keeps 10 + 24/t bytes
    for each token and channel where t devices share it; without the n × n map, which is not kept.
    """
    inputs = BYTES * n * model.dim * layers * waiting
    return inputs + n * model.dim * (10 + 24 / parts)


# ---- a product whose rows travel


class Product(NamedTuple):
    """Seconds of a product whose rows lie on several devices.

    products: all products of a device, without any exchange. sends: all that it sends, without any
    product. apart: an all-gather and then one product. together: each shard is multiplied while the
    next one travels (``steps.travelling_product``).
    """

    products: float
    sends: float
    apart: float
    together: float


def product(
    rows: int, dim: int, columns: int, devices: int, *, flops: float, link: float
) -> Product:
    """A floor of the time of x W.

    rows, dim: of x (rows, dim), whose rows are divided: (rows / devices, dim) on each device.
    columns: of the matrix W (dim, columns) that one device holds.
    flops: operations a second in the products of a shard.
    link: bytes a second that a device sends.

    The first shard is there; each other one travels while the one before it is multiplied, so that
    a step takes the longer of the two. Raises ValueError for rows that cannot be divided.
    """
    given = {"rows": rows, "dim": dim, "columns": columns, "devices": devices}
    for name, value in given.items():
        check_integer(f"`{name}`", value, at_least=1)
    for name, rate in {"flops": flops, "link": link}.items():
        check_positive(name, rate)
    if rows % devices:
        raise ValueError(f"{rows} rows cannot be divided among {devices} devices")
    shard = rows // devices
    work, travel = 2 * shard * dim * columns / flops, BYTES * shard * dim / link
    products, sends = devices * work, (devices - 1) * travel
    steps = (devices - 1) * max(work, travel)
    return Product(products, sends, products + sends, steps + work)


# ---- pipelines


def idle_share(stages: int, microbatches: int) -> float:
    """The share of a step in which a stage of a pipeline has nothing to do."""
    s = check_integer("`stages`", stages, at_least=1)
    m = check_integer("`microbatches`", microbatches, at_least=1)
    return (s - 1) / (m + s - 1)


class Slot(NamedTuple):
    """What a stage does in one slot of time: a pass of a microbatch."""

    way: str  # "forward" or "backward"
    microbatch: int


def schedule(stages: int, microbatches: int) -> list[list[Slot | None]]:
    """Slot by slot what each stage does, or None where it waits: all forward passes, then all
    backward passes in the opposite order, each as soon as what it needs is there (GPipe).

    A backward pass is counted as one slot, like a forward pass, as in the formula.
    """
    idle_share(stages, microbatches)
    passes = [Slot("forward", i) for i in range(microbatches)]
    passes += [Slot("backward", i) for i in reversed(range(microbatches))]
    done: dict[tuple[int, Slot], int] = {}
    rows: list[list[Slot | None]] = [[] for _ in range(stages)]
    slot = 0
    while len(done) < stages * len(passes):
        for stage, row in enumerate(rows):
            position = sum(each is not None for each in row)
            following = passes[position] if position < len(passes) else None
            ready = following is not None and all(
                done.get(one, slot) < slot for one in _before(stage, following, stages)
            )
            row.append(following if ready else None)
            if ready and following is not None:
                done[stage, following] = slot
        slot += 1
    return rows


def _before(stage: int, slot: Slot, stages: int) -> list[tuple[int, Slot]]:
    """The pass of another stage whose result this one needs."""
    if slot.way == "forward":
        return [(stage - 1, slot)] if stage else []
    if stage < stages - 1:
        return [(stage + 1, slot)]
    return [(stage, Slot("forward", slot.microbatch))]


# ---- a cluster


class Plan(NamedTuple):
    """One way to cut a cluster: each device is one of tensor × pipeline × data.

    states, whole_layer, activations: bytes on a device (``memory``: of all three).
    sent: bytes that it sends in one step, for the tensor parts, between stages, and between
    replicas. seconds: the step, if nothing overlaps. idle: share of the step in which a stage
    waits. fits: whether the memory is enough.
    """

    tensor: int
    pipeline: int
    data: int
    stage: int
    states: float
    whole_layer: float
    activations: float
    sent: tuple[int, int, int]
    idle: float
    seconds: float
    fits: bool

    @property
    def memory(self) -> float:
        return self.states + self.whole_layer + self.activations


def plan(
    model: Model,
    cluster: Cluster,
    *,
    batch: int,
    n: int,
    tensor: int = 1,
    pipeline: int = 1,
    stage: int = 0,
) -> Plan:
    """What one division costs, in a step of ``batch`` texts of n tokens.

    The devices that tensor × pipeline leaves are replicas, which share the batch; each passes its
    texts through the pipeline one at a time, so that a text is a microbatch, and keeps min(texts,
    stages) of them waiting (one forward, one backward in turn: Narayanan et al., section 2.2).
    Experts are on every replica.

    Raises ValueError, with the reason, for a division that cannot be made.
    """
    for name, value in {"batch": batch, "n": n, "tensor": tensor, "pipeline": pipeline}.items():
        check_integer(f"`{name}`", value, at_least=1)
    data = _replicas(model, cluster, batch, tensor, pipeline)
    own = -(-model.parameters // (tensor * pipeline))
    texts, layers = batch // data, model.layers // pipeline
    sent = (
        BYTES * tensor_sent(model, texts * n, tensor, again=True) // pipeline,
        BYTES * pipeline_sent(model, texts * n) if pipeline > 1 else 0,
        BYTES * sharded_sent(own, data, stage, texts),
    )
    states = states_held(own, data, stage)
    whole_layer = whole_layer_held(model, devices=data, stage=stage, parts=tensor)
    waiting = min(texts, pipeline)
    activations = activations_held(model, n, parts=tensor, layers=layers, waiting=waiting)
    idle = idle_share(pipeline, texts)
    products = model.flops(batch * n, n) / (cluster.devices * cluster.flops)
    inside, between = cluster.inside, cluster.between
    outside = between if cluster.devices > cluster.machine else inside
    # The all-reduces of a pass are part of a stage's slot, so that waiting stages wait for them.
    slots = products + sent[0] / (inside if tensor <= cluster.machine else between)
    seconds = slots / (1 - idle) + (sent[1] + sent[2]) / outside
    found = Plan(
        tensor, pipeline, data, stage, states, whole_layer, activations, sent, idle, seconds, False
    )
    return found._replace(fits=found.memory <= cluster.memory)


def _replicas(model: Model, cluster: Cluster, batch: int, parts: int, pipeline: int) -> int:
    if cluster.devices % (parts * pipeline):
        raise ValueError(
            f"{cluster.devices} devices are no multiple of tensor={parts} times pipeline={pipeline}"
        )
    for what, size in {"heads": model.heads, "hidden": model.hidden}.items():
        if size % parts:
            raise ValueError(f"{what}={size} cannot be divided among tensor={parts} devices")
    if model.layers % pipeline:
        raise ValueError(f"{model.layers} layers cannot be divided into {pipeline} equal stages")
    data = cluster.devices // (parts * pipeline)
    if batch % data:
        raise ValueError(f"a batch of {batch} texts cannot be divided among {data} replicas")
    return data


def plans(model: Model, cluster: Cluster, *, batch: int, n: int) -> list[Plan]:
    """Every division of the cluster that can be made, those that fit first, the shortest step
    first among them; each in all stages of sharding, where there are replicas."""
    check_integer("`batch`", batch, at_least=1)
    check_integer("`n`", n, at_least=1)
    found = []
    divisors = [i for i in range(1, cluster.devices + 1) if cluster.devices % i == 0]
    for parts in divisors:
        for pipeline in [i for i in divisors if cluster.devices % (i * parts) == 0]:
            try:
                data = _replicas(model, cluster, batch, parts, pipeline)
            except ValueError:
                continue
            found += [
                plan(model, cluster, batch=batch, n=n, tensor=parts, pipeline=pipeline, stage=stage)
                for stage in (STAGES if data > 1 else (0,))
            ]
    return sorted(found, key=lambda each: (not each.fits, each.seconds))
