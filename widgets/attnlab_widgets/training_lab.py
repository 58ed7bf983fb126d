"""What widgets with two models in training share: buttons, the state of the training, its numbers.

A subclass makes a `Training`, draws in `_draw`, and says in `_lock` what must not change meanwhile.
"""

from collections.abc import Callable, Sequence

import ipywidgets as widgets

from attnlab.figures.loss_curve import loss_curve
from attnlab.train.in_turn import Learner, Training
from attnlab_widgets.background import Throttled
from attnlab_widgets.base import HasStill
from attnlab_widgets.messages import Line, aside, news
from attnlab_widgets.two_columns import Steps

MOST_STEPS = 5000
EVERY = 0.3  # seconds between two updates of the page
TIGHT = {"description_width": "initial"}
_OFFERS = {
    "idle": ("Train", "play", "Train the chosen models in the background"),
    "training": ("Pause", "pause", "Wait after the present step; nothing is lost"),
    "paused": ("Resume", "play", "Go on with the training"),
}
# Colours follow the page: JupyterLab's own where it is there, plain inheritance elsewhere.
_STYLE = """<style>
.LAB { gap: 6px; }
.LAB h3 { margin: 0; font-size: 1.05em; line-height: 1.35; }
.LAB h3 small { font-weight: normal; opacity: 0.8; font-size: 0.85em; }
.LAB .attnlab-aside { opacity: 0.8; line-height: 1.45; overflow-wrap: anywhere; }
.LAB .attnlab-alert {
  border-left: 4px solid #d55e00; padding: 4px 10px; line-height: 1.45; overflow-wrap: anywhere;
}
.LAB .attnlab-alert pre { white-space: pre-wrap; font-size: 0.85em; }
.LAB .attnlab-numbers { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: center; }
.LAB .attnlab-curve { display: block; }
.LAB .av-heads-hint { display: none; }
.LAB textarea { line-height: 1.4; }
</style>"""


class TrainingLab(HasStill, widgets.VBox):
    """Models in training, which can be paused, resumed and stopped while their maps follow."""

    # Set on the class, because ipywidgets closes objects whose arguments were refused, too.
    _training: Training | None = None
    _looker: Throttled | None = None
    _following = "Training. The maps follow."

    @property
    def state(self) -> str:
        """ "idle", "training" or "paused"."""
        if self._training is None or self._training.over:
            return "idle"
        return "paused" if self._training.paused else "training"

    def train(self) -> None:
        """Train in the background, for as many steps as the field says.

        A second training goes on where the first has ended, on other batches.
        """
        if self.state != "idle":
            self.resume()
        elif training := self._new_training():
            self._training = training
            training.begin()
            self._tell(self._following)

    def pause(self) -> None:
        """Wait after the present step; nothing is lost."""
        self._order(Training.pause, "Paused; nothing is lost. The slider goes back in time.")

    def resume(self) -> None:
        """Go on where `pause` has interrupted."""
        self._order(Training.resume, self._following)

    def stop(self) -> None:
        """End the training after the present step; what was learned is kept."""
        self._order(Training.stop, "Stopping after this step.")

    def start_over(self) -> None:
        """The models as they were before any training."""
        raise TypeError(f"{type(self).__name__} does not say how it starts over")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until training and drawing are done; False if they are not (or it is paused)."""
        if self.state == "paused":
            return False
        ended = self._training is None or self._training.join(timeout)
        return ended and (self._looker is None or self._looker.settle(timeout))

    def close(self) -> None:
        if self._looker is not None:
            self._looker.close()
        self._leave()
        super().close()

    # What a widget adds

    def _new_training(self) -> Training | None:
        """What is to be trained now; None, with a message, where there is nothing."""

    def _leave(self) -> None:
        """Stop what runs."""

    def _lock(self, locked: bool) -> None:
        """Menus that must not change while something is trained."""

    def _to_step(self, step: int) -> None:
        """Show the maps of that step of the training in every view."""

    # The page

    def _training_controls(self, steps: int) -> None:
        self.steps = widgets.BoundedIntText(
            value=steps, min=1, max=MOST_STEPS, description="Steps", layout=width(130), style=TIGHT
        )
        self.button = widgets.Button(icon="play", button_style="primary", layout=width(96))
        self.stopper = widgets.Button(description="Stop", icon="stop", layout=width(90))
        self.restorer = widgets.Button(description="Start over", icon="undo", layout=width(120))
        self.progress = widgets.IntProgress(
            value=0, max=steps, description="Progress", layout=width(190), style=TIGHT
        )
        self.step = Steps(self._to_step)
        self._note, self._status, self._alert, self._numbers = (Line() for _ in range(4))
        self.button.on_click(self._pressed)
        self.stopper.on_click(lambda _button: self.stop())
        self.restorer.on_click(lambda _button: self.start_over())

    def _pressed(self, _button: widgets.Button) -> None:
        # One button, never disabled: the keyboard's focus stays where it is.
        {"idle": self.train, "training": self.pause, "paused": self.resume}[self.state]()

    def _order(self, what: Callable[[Training], None], message: str) -> None:
        if self._training is None or self.state == "idle":
            self._tell("Nothing is training.")
            return
        what(self._training)
        self._tell(message)

    def _tell(self, text: str) -> None:
        """Show a status message and enable the buttons that apply now."""
        self._status.value = news(text)
        label, icon, hint = _OFFERS[self.state]
        self.button.description, self.button.icon, self.button.tooltip = label, icon, hint
        self._lock(self.state != "idle")

    def _ask(self) -> None:
        """Have the page drawn again, in the background."""
        if self._looker is not None:
            self._looker.ask()

    def _show_progress(
        self, training: Training, named: Sequence[tuple[str, int, Learner]], said: str
    ) -> None:
        """Steps and losses of models with their names and places; ``said`` beside the curve."""
        self.progress.max, self.progress.value = training.steps, training.done
        curve = loss_curve([(name, at, of.losses) for name, at, of in named], training.steps)
        self._numbers.value = f'<div class="attnlab-numbers">{aside(said)}{curve}</div>'


def style_of(name: str) -> widgets.HTML:
    """The styles of a lab whose CSS class is ``name``."""
    shown = _STYLE.replace("LAB", name)
    return widgets.HTML(shown, layout=widgets.Layout(display="none"))


def width(pixels: int) -> widgets.Layout:
    return widgets.Layout(width=f"{pixels}px", flex="0 0 auto")
