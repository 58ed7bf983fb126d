// The image that the tokens are patches of; beside it the patches in the colours of their experts.
import { boxOf, neighbour, tokenAt } from "#lib/patches.js";
import { el, plain, sized } from "#parts/dom.js";
import { ground } from "./ground.js";

const GAP = 16;

export function patchesPanel(study, view) {
  const canvas = el("canvas", { class: "ex-patches", role: "application", tabindex: 0, "aria-roledescription": "image", "data-testid": "patches" });
  const node = el("section", { class: "av-panel" }, canvas);
  const picture = new Image();
  picture.addEventListener("load", () => view.changed());
  node.hidden = study.image === null;
  if (study.image) picture.src = study.image.url;
  let [wide, high] = [1, 1];

  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) % (wide + GAP);
    return tokenAt(study.image.grid, x / wide, (event.clientY - box.top) / high);
  };
  canvas.addEventListener("pointermove", (event) => view.point(under(event)));
  canvas.addEventListener("pointerleave", () => view.point(null));
  canvas.addEventListener("click", (event) => {
    const token = under(event);
    if (token !== null) study.set({ token });
  });
  canvas.addEventListener("keydown", (event) => {
    const next = plain(event) ? neighbour(study.image.grid, study.model.get("token"), event.key) : null;
    if (next === null) return;
    event.preventDefault();
    study.set({ token: next });
  });

  function draw(across, most) {
    if (node.hidden) return;
    const { width, height, grid } = study.image;
    high = Math.min(most, (((across - GAP) / 2) * height) / width);
    wide = (high * width) / height;
    const context = sized(canvas, 2 * wide + GAP, high);
    context.imageSmoothingEnabled = width > wide;
    if (picture.complete && picture.naturalWidth) context.drawImage(picture, 0, 0, wide, high);
    for (let i = grid.first; i < study.n; i += 1) {
      const [x, y, w, h] = boxOf(grid, i, wide, high);
      ground(context, study.choices(i), [wide + GAP + x, y, w - 1, h - 1], view);
    }
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    for (const left of [0, wide + GAP]) {
      const found = boxOf(grid, study.shown, wide, high);
      if (found) context.strokeRect(left + found[0] + 1, found[1] + 1, found[2] - 2, found[3] - 2);
    }
    canvas.setAttribute("aria-label", `Patches by expert, ${grid.rows} by ${grid.columns}. Arrow keys move over them. ${study.sentence}`);
  }

  return { node, draw };
}
