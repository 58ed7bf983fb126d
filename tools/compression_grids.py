"""What ``CompressionLab`` knows of the shipped models: right answers by share, bits and cut.

    python -m tools.compression_grids       computes what the file does not hold, in some minutes

Models are those of ``attnlab.pretrained`` and the students of ``attnlab.experiments.students``. Of
"digits" the right answers to the 355 test images are counted; of "documentation" the share of next
tokens that are right in each of 32 passages of 64 tokens that were not trained on, from the
documentation of the Python that runs this. The importance of heads is that of the same answers.
"""

import json
from typing import Any

from attnlab_widgets.compression_lab import MODEL, PASSAGE, PASSAGES
from attnlab_widgets.compression_lab.grids import PERS, STORED, grid_of, key, place

from attnlab import pretrained
from attnlab.core.files import write_file
from attnlab.experiments import students
from attnlab.lens.smaller import cuts_of, importance_order


def digits() -> tuple[dict[str, Any], Any, Any]:
    """Models by name, inputs and answers."""
    batch = students.unseen()
    models: dict[str, Any] = {MODEL: students.teacher()}
    models |= {name: students.student(name) for name in students.GRID.arms}
    return models, batch.inputs, batch.targets


def documentation() -> tuple[dict[str, Any], Any, Any]:
    """The model, passages and their next tokens."""
    model, task = pretrained.load("documentation")
    batch = task.batch("validation", PASSAGES, 0)
    return {MODEL: model}, batch.inputs[:, : PASSAGE - 1], batch.targets[:, : PASSAGE - 1]


def main() -> None:
    found: dict[str, Any] = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    asked = {"digits": digits(), "documentation": documentation()}
    for name, (models, inputs, labels) in asked.items():
        own = found.setdefault(name, {"rows": len(inputs), "orders": {}, "grids": {}})
        for each, model in models.items():
            if each not in own["orders"]:
                own["orders"][each] = importance_order(model, inputs, labels)
    jobs = [
        (name, each, cut, per)
        for cut in cuts_of(asked["digits"][0][MODEL])
        for name, (models, *_) in asked.items()
        for each in models
        for per in PERS
    ]
    for name, each, cut, per in jobs:
        models, inputs, labels = asked[name]
        grids = found[name]["grids"]
        if key(each, cut, per) in grids:
            continue
        other = grids.get(key(each, cut, PERS[0])) if per != PERS[0] else None

        def known(kept: float, bits: int, other: Any = other) -> Any:
            """With 32 bits there are no scales."""
            if other is None or bits != 32:
                return None
            return [values[place(kept, bits)] for values in other.values()]

        order = found[name]["orders"][each]
        grids[key(each, cut, per)] = grid_of(models[each], cut, per, order, inputs, labels, known)
        write_file(STORED, json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
