// What was drawn around: what its tokens share, and how far away its queries attend.
import { el, sized } from "#parts/dom.js";
import { byDistance, common } from "./cluster.js";
import { headed } from "#parts/table.js";
import { weight } from "#lib/words.js";
import { what } from "./words.js";

const [WIDE, HIGH, FOOT] = [300, 96, 26];
const percent = (share) => `${Math.round(100 * share)} %`;

export function lassoPanel(study, view) {
  const said = el("p", { class: "qk-said", "data-testid": "cluster" });
  const shared = el("div", { class: "qk-shared" });
  const title = el("h4", { text: "Mean attention of its queries by distance" });
  const bars = el("canvas", { role: "img", "data-testid": "by-distance" });
  const note = el("p", { class: "qk-said av-quiet", text: `Of the strongest keys of each query; −1 is the token before it.` });
  const clear = el("button", { type: "button", class: "av-button", text: "Forget", "data-testid": "forget", onclick: () => view.drawn(null) });
  const node = el("div", { class: "qk-cluster" }, said, shared, title, bars, note, clear);

  function draw() {
    const { members } = study;
    const { q, k } = study.sets();
    const sequences = new Set([...members.query.map((row) => q.sequence[row]), ...members.key.map((row) => k.sequence[row])]);
    said.textContent = `${members.query.length} queries and ${members.key.length} keys of ${sequences.size} ${what(q)}${sequences.size === 1 ? "" : "s"}.`;
    const rows = common(members, { q, k }, study.get("modulo"));
    shared.replaceChildren(rows.length
      ? headed("What they share", ["", "", "here", "on the map"], rows.map(({ what: of, name, share, map }) => [of, name, percent(share), percent(map)]), "shared")
      : el("p", { class: "qk-said", text: "No token, kind or position is much more frequent here than on the whole map." }));
    const distances = members.query.length ? byDistance(members.query, study.attention(), { q, k }) : [];
    for (const one of [title, bars, note]) one.hidden = !distances.length;
    if (distances.length) chart(distances);
  }

  function chart(distances) {
    const pen = sized(bars, WIDE, HIGH + FOOT);
    const largest = Math.max(...distances.map(({ w }) => w), 1e-6);
    const step = WIDE / distances.length;
    pen.font = view.small;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    distances.forEach(({ distance, w, beyond }, at) => {
      const high = (w / largest) * (HIGH - 16);
      const middle = (at + 0.5) * step;
      pen.fillStyle = view.colour(beyond ? "--av-quiet" : "--av-series-0");
      pen.fillRect(middle - Math.min(26, step - 2) / 2, HIGH - high, Math.min(26, step - 2), high);
      pen.fillStyle = view.colour("--av-quiet");
      if (w === largest) pen.fillText(weight(w, 0.01), Math.min(WIDE - 14, Math.max(14, middle)), HIGH - high - 13);
      if (!beyond && (step > 22 || distance % 4 === 0)) pen.fillText(`${distance}`.replace("-", "−"), middle, HIGH + 4);
    });
    const ends = distances.filter(({ beyond }) => beyond).map(({ distance }) => `${Math.abs(distance)} tokens ${distance < 0 ? "before" : "after"} or more`);
    note.textContent = `Of the strongest keys of each query; −1 is the token before it${ends.length ? `, grey: ${ends.join("; ")}` : ""}.`;
    const most = distances.reduce((a, b) => (b.w > a.w ? b : a));
    bars.setAttribute("aria-label", `Mean attention by distance, most at ${most.distance}: ${weight(most.w, 0.01)}`);
  }

  return { node, draw };
}
