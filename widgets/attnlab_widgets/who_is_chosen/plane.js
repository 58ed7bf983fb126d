// The vectors in a plane: colours are buckets of the first round; the chosen query can be dragged.
import { hashes } from "#lib/choices.js";
import { el } from "#parts/dom.js";
import { board, grip, tell } from "#parts/board.js";
import { drawn } from "#parts/svg.js";
import { extent } from "#lib/plane.js";

const COLOURS = 6; // series of the theme; further buckets repeat them with a ring
const DEGREES = 2; // from one sample of the sectors to the next

export function planePanel(study, legend) {
  const it = board("plane", "Vectors in a plane, coloured by their bucket");
  const title = el("h3", { text: "" });
  const note = el("p", { class: "av-quiet wc-note" });
  const beside = el("div", { class: "wc-beside" }, note, legend);
  const node = el("section", { class: "av-panel wc-plane" }, title, el("div", { class: "wc-row" }, el("div", { class: "qp-stage" }, it.node), beside));
  const handle = grip(it, {
    label: "The query", testid: "handle",
    at: () => study.place(study.queries[study.state.query]),
    move: (point) => study.moveTo(point),
  });
  handle.append(drawn("circle", { class: "qp-reach", r: 16 }), drawn("circle", { class: "wc-ring", r: 8 }), drawn("circle", { class: "qp-dot", r: 5 }));
  it.over.append(handle);
  const colour = (bucket) => `var(--av-series-${bucket % COLOURS})`;

  function sectors(half) {
    const { buckets } = study.state;
    const angles = Array.from({ length: 360 / DEGREES }, (_, at) => ((at + 0.5) * DEGREES * Math.PI) / 180);
    const directions = angles.map((angle) => Float64Array.from([Math.cos(angle), Math.sin(angle)]));
    const [of] = hashes(directions, study.rotations(1, buckets));
    const step = ((DEGREES / 2) * Math.PI) / 180;
    const far = half * 1.5;
    return angles.map((angle, at) => {
      const [a, b] = [angle - step, angle + step].map((x) => [far * Math.cos(x), far * Math.sin(x)]);
      return drawn("path", { class: "wc-sector", d: `M${it.x([0, 0])} ${it.y([0, 0])}L${it.x(a)} ${it.y(a)}L${it.x(b)} ${it.y(b)}Z`, style: `fill:${colour(of[at])}` });
    });
  }

  function dot(x, i, isKey) {
    const [at, bucket] = [study.place(x), isKey ? study.found.hashing.keyGroups[i] : study.hashed[i]];
    const name = `${isKey ? "key" : study.shared ? "token" : "query"} ${i} “${study.tokens[i]}”, bucket ${bucket}`;
    const mark = isKey
      ? drawn("path", { d: "M0 -4.5L4.5 0L0 4.5L-4.5 0Z", transform: `translate(${it.x(at)} ${it.y(at)})` })
      : drawn("circle", { cx: it.x(at), cy: it.y(at), r: 4.2 });
    mark.setAttribute("class", `wc-dot${bucket >= COLOURS ? " wc-second" : ""}`);
    mark.setAttribute("style", `fill:${colour(bucket)}`);
    mark.append(drawn("title", { text: name }));
    if (!isKey) mark.addEventListener("pointerdown", () => study.set({ query: i }));
    return mark;
  }

  function draw(side) {
    const places = [...study.queries, ...(study.shared ? [] : study.keys)].map((x) => study.place(x));
    it.size(side, extent(places, 0.5));
    const { query } = study.state;
    const marks = study.queries.map((x, i) => (i === query ? null : dot(x, i, false))).filter(Boolean);
    const keys = study.shared ? [] : study.keys.map((x, j) => dot(x, j, true));
    it.under.replaceChildren(...(study.d === 2 ? sectors(it.half) : []), ...it.axes(), ...keys, ...marks);
    const at = study.place(study.queries[query]);
    handle.setAttribute("transform", `translate(${it.x(at)} ${it.y(at)})`);
    handle.lastChild.setAttribute("style", `fill:${colour(study.hashed[query])}`);
    tell(handle, it, at, `, bucket ${study.hashed[query]}`);
    title.textContent = study.d === 2 ? "Buckets of the first round" : `Vectors (two of ${study.d} directions)`;
    note.textContent = study.shared ? "Drag the ringed query." : "● queries, ◆ keys. Drag the ringed query.";
  }
  return { node, draw };
}
