"""The losses of a training as a small picture in a line of text."""

from collections.abc import Sequence

from attnlab.core.markup import escape

WIDTH, HEIGHT, POINTS = 180, 36, 60
STYLES = (("#0072b2", "none"), ("#d55e00", "5 3"))  # distinguished by colour and by dash

Losses = Sequence[tuple[int, float]]


def loss_curve(curves: Sequence[tuple[str, int, Losses]], steps: int) -> str:
    """An SVG of (name, 0 or 1, [(step, loss), …]) over `steps` steps; "" while there is no line.

    Each point is the mean of the steps since the last: single batches are noise.
    """
    means = [(name, style, _means(losses, steps)) for name, style, losses in curves]
    shown = [(name, style, points) for name, style, points in means if len(points) > 1]
    if not shown:
        return ""
    values = [loss for _, _, points in shown for _, loss in points]
    low, span = min(values), max(max(values) - min(values), 1e-9)
    lines = "".join(_line(points, STYLES[style], steps, low, span) for _, style, points in shown)
    description = "; ".join(f"{name} from {p[0][1]:.2f} to {p[-1][1]:.2f}" for name, _, p in shown)
    return (
        f'<svg role="img" aria-label="Loss: {escape(description)}" class="attnlab-curve" '
        f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>Loss: {escape(description)}</title>{lines}</svg>"
    )


def _means(losses: Losses, steps: int) -> list[tuple[float, float]]:
    width = max(1, -(-steps // POINTS))
    parts = [losses[at : at + width] for at in range(0, len(losses), width)]
    return [(part[-1][0] - losses[0][0], _mean([loss for _, loss in part])) for part in parts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _line(
    points: Sequence[tuple[float, float]],
    style: tuple[str, str],
    steps: int,
    low: float,
    span: float,
) -> str:
    colour, dash = style
    placed = " ".join(
        f"{2 + step / max(steps - 1, 1) * (WIDTH - 4):.1f},"
        f"{HEIGHT - 3 - (loss - low) / span * (HEIGHT - 6):.1f}"
        for step, loss in points
    )
    return (
        f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}" stroke-linejoin="round"/>'
    )
