"""The experiment `layers_of_pixels`, small: what the model reads, and what its controls are."""

import torch

from attnlab.experiments import layers_of_pixels as experiment
from attnlab.experiments.layers_of_pixels import begun, build, images, probed
from attnlab.experiments.pixels import problem
from attnlab.systems.image_gpt import image_states


def test_the_model_reads_what_it_was_trained_on() -> None:
    known = images("train")
    assert known.inputs.shape == (1442, 64)
    read = begun(known.inputs)
    trained_on = problem().batch("train", 1442, seed=0)
    assert torch.equal(read, trained_on.inputs)
    assert torch.equal(known.inputs, trained_on.targets)


def test_a_probe_has_a_number_for_each_layer_and_does_not_know_shuffled_labels() -> None:
    model = build("pixels", 0).eval()
    found = probed(model, 0, quick=True)
    assert found.right.shape == found.shuffled.shape == (experiment.LAYERS + 1,)
    assert found.shuffled.max() < 0.25
    assert found.right.max() > 0.3  # random layers mix levels with places
    states = image_states(model, begun(images("validation").inputs))
    assert states.shape == (experiment.LAYERS + 1, 355, 48)


def test_the_levels_themselves_are_a_baseline() -> None:
    right = probed(None).right
    assert right.shape == (1,)
    assert right > 0.9
