// What is right against the share that is kept, with its interval, and the bytes.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { share, size } from "./words.js";

const HIGH = 150;
const [LEFT, RIGHT, TOP, BOTTOM] = [42, 12, 8, 32];

export function curvePanel(study, view) {
  const title = el("h3");
  const svg = drawn("svg", { role: "img", class: "cp-curve" });
  const fill = el("div", { class: "cp-fill" });
  const said = el("div", { class: "cp-bytes-said", "data-testid": "bytes" });
  const bar = el("div", { class: "cp-bytes", "aria-hidden": "true" }, fill);
  const node = el("section", { class: "av-panel cp-right", "data-testid": "curve" }, title, svg, said, bar);

  function draw(wide, room) {
    const { state, lab: { shares } } = study;
    const across = room === "three" ? Math.floor((wide - 40) * 0.32) : wide;
    title.textContent = state.bits === 32 ? "What is right, with 32 bits" : `What is right, with ${state.bits} bits`;
    const [inner, high] = [across - LEFT - RIGHT, HIGH - TOP - BOTTOM];
    const x = (kept) => LEFT + (1 - kept) * inner;
    const y = (right) => TOP + (1 - right) * high;
    const parts = [0, 0.5, 1].flatMap((at) => [
      drawn("line", { x1: LEFT, x2: LEFT + inner, y1: y(at), y2: y(at), class: "cp-grid" }),
      drawn("text", { x: LEFT - 5, y: y(at) + 4, "text-anchor": "end", class: "cp-tick", text: `${100 * at} %` }),
    ]);
    for (const at of [1, 0.75, 0.5, 0.25]) parts.push(drawn("text", { x: x(at), y: HIGH - 19, "text-anchor": at === 1 ? "start" : "middle", class: "cp-tick", text: `${100 * at} %` }));
    parts.push(drawn("text", { x: LEFT + inner / 2, y: HIGH - 4, "text-anchor": "middle", class: "cp-tick", text: "share kept" }));
    const whole = study.wholeScore;
    parts.push(drawn("line", { x1: LEFT, x2: LEFT + inner, y1: y(whole), y2: y(whole), class: "cp-whole" }));
    const found = study.grid ? shares.map((kept) => [kept, ...study.score(kept)]) : [];
    if (found.length) {
      const line = (list) => list.map(([at, right]) => `${x(at).toFixed(1)},${y(right).toFixed(1)}`).join(" ");
      parts.push(drawn("polygon", { points: line([...found.map(([kept, , low]) => [kept, low]), ...found.map(([kept, , , top]) => [kept, top]).reverse()]), class: "cp-band" }));
      parts.push(drawn("polyline", { points: line(found), class: "cp-line" }));
      const [now, low, top] = study.score();
      parts.push(drawn("line", { x1: x(state.kept), x2: x(state.kept), y1: y(low), y2: y(top), class: "cp-interval" }));
      parts.push(drawn("circle", { cx: x(state.kept), cy: y(now), r: 5, class: "cp-now" }));
    }
    const each = found.map(([kept, right]) => `${share(kept)}: ${share(right)}`).join("; ");
    svg.setAttribute("aria-label", found.length ? `Right answers by the share kept. ${each}. Whole model, dashed: ${share(whole)}.` : "Right answers are not stored for this way of cutting.");
    svg.setAttribute("width", across);
    svg.setAttribute("height", HIGH);
    svg.setAttribute("viewBox", `0 0 ${across} ${HIGH}`);
    svg.replaceChildren(...parts);
    said.textContent = `${size(study.size)} of ${size(study.whole)}: ${share(study.size / study.whole)}`;
    fill.style.width = `${Math.min(100, (100 * study.size) / study.whole)}%`;
  }

  return { node, draw };
}
