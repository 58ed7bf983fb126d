// The state as an image: channels downwards, tokens to the right; beside it how long each channel holds.
import { holdsOf, short, stateAt } from "#lib/film.js";
import { painted } from "#lib/colours.js";
import { bitmap, el, sized } from "#parts/dom.js";

const [LEFT, TOP, HOLDS, GAP] = [58, 18, 130, 14];

export function statePanel(study, view) {
  const canvas = el("canvas", { class: "mf-state", role: "img", tabindex: 0, "data-testid": "state" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "state-readout" });
  const title = el("h3", {});
  const node = el("section", { class: "av-panel mf-carried" }, title, canvas, readout);
  let [wide, high] = [0, 0];
  const across = () => wide - LEFT - HOLDS - GAP;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - LEFT, event.clientY - box.top - TOP];
    const [token, row] = [Math.floor((x / across()) * study.n), Math.floor((y / high) * study.layer.dim)];
    if (row < 0 || row >= study.layer.dim || x < 0) return null;
    return [Math.min(study.n - 1, token), study.channels[row]];
  };
  canvas.addEventListener("pointermove", (event) => view.point(at(event)));
  canvas.addEventListener("pointerleave", () => view.point(null));
  canvas.addEventListener("click", (event) => {
    const found = at(event);
    if (found) study.set({ query: found[0], channel: found[1] });
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    // Keys may come faster than pictures, so that what was drawn last is not what is chosen.
    const [query, channel] = ["query", "channel"].map((name) => study.model.get(name));
    const row = study.channels.indexOf(channel);
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!across && !down) return;
    event.preventDefault();
    if (across) study.set({ query: Math.min(study.n - 1, Math.max(0, query + across)) });
    else study.set({ channel: study.channels[Math.min(study.layer.dim - 1, Math.max(0, row + down))] });
  });

  function draw(width, height) {
    [wide, high] = [width, height - TOP];
    const { layer, n, channels, state: { query, channel, vector } } = study;
    const context = sized(canvas, wide, height);
    context.translate(0, TOP);
    const [cell, row] = [across() / n, high / layer.dim];
    const values = Float32Array.from({ length: layer.dim * n }, (_, place) => stateAt(layer, vector, place % n, channels[Math.floor(place / n)]));
    const largest = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, largest, true, view.dark), n, layer.dim), LEFT, 0, across(), high);
    context.fillStyle = view.colour("--av-paper");
    context.globalAlpha = 0.82; // what has not been read yet
    context.fillRect(LEFT + (query + 1) * cell, 0, (n - query - 1) * cell, high);
    context.globalAlpha = 1;
    bars(context, row);
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 1.5;
    context.strokeRect(LEFT + query * cell, 0.75, Math.max(2, cell), high - 1.5);
    context.strokeRect(LEFT + 0.75, channels.indexOf(channel) * row, across() - 1.5, Math.max(2, row));
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "right";
    context.fillText("channels", LEFT - 6, high / 2);
    context.textAlign = "left";
    context.fillText(layer.half_lives ? "half-life (log)" : "change (log)", wide - HOLDS, -6);
    title.textContent = `The state after every token: ${layer.what} (blue below 0, orange above)`;
    canvas.setAttribute("aria-label", `${study.sentence} Arrow keys move the token and the channel.`);
    readout.textContent = said(...(Array.isArray(study.at) ? study.at : [query, channel]));
  }

  /** How long each channel holds, on a logarithmic scale from a hundredth. */
  function bars(context, row) {
    const holds = holdsOf(study.layer, study.state.vector);
    const log = (value) => Math.log10(Math.max(value, 0.01)) + 2;
    const most = Math.max(...Array.from(holds, log), 1e-9);
    study.channels.forEach((channel, at) => {
      context.fillStyle = view.colour(channel === study.state.channel ? "--av-series-1" : "--av-series-0");
      context.fillRect(wide - HOLDS, at * row, HOLDS * (log(holds[channel]) / most), Math.max(0.6, row - (row > 3 ? 1 : 0)));
    });
  }

  function said(token, channel) {
    const { layer, tokens, state: { vector } } = study;
    const value = stateAt(layer, vector, token, channel);
    const hold = holdsOf(layer, vector)[channel];
    const holds = layer.half_lives ? `half-life ${short(hold)} tokens` : `changes by ${short(hold)} of its standard deviation`;
    return `Channel ${channel} after token ${token} “${tokens[token]}”: ${value.toPrecision(3).replace("-", "−")}; ${holds}.`;
  }

  return { node, draw };
}
