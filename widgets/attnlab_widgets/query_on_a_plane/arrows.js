// The query and the keys as arrows, over lines of equal score, projections or winners.
import { foot, long, scoreLines, two, winners } from "#lib/plane.js";
import { parse } from "#lib/colours.js";
import { bitmap, el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { board, diamond, grip, hatchOf, pressedBeside, tell } from "#parts/board.js";

const CELLS = 110; // of the map of winners, along a side
const LOOKS = { scores: "lines of equal score", projections: "projections on the query", winners: "which key wins" };

export function arrowsPanel(study, view) {
  const it = board("plane", "The query and the keys in the plane");
  const map = el("canvas", { class: "qp-map", "aria-hidden": "true", hidden: true });
  const stage = el("div", { class: "qp-stage" }, map, it.node);
  const node = el("section", { class: "av-panel qp-arrows", "aria-label": "Query and keys" },
    el("h3", {}, el("span", { class: "qp-ink-query", text: "● Query" }), " and ", el("span", { class: "qp-ink-key", text: "◆ keys" })),
    stage);
  const query = movable("query", 0, "the query");
  query.append(drawn("line", { class: "qp-arm" }), drawn("circle", { class: "qp-dot", r: 8.5 }), drawn("text", { class: "qp-name qp-letter", text: "query" }), drawn("circle", { class: "qp-reach", r: 17 }));
  let keys = [];
  let shown = "";

  function movable(trait, j, name) {
    const isKey = trait !== "query";
    return grip(it, {
      label: isKey ? `key ${name}: arrow keys move it, Space masks it` : "query: arrow keys move it, with Shift in larger steps",
      testid: isKey ? `key-${j}` : "query",
      at: () => (isKey ? study.state.keys[j] : study.state.query),
      move: (point) => study.move(trait, j, point),
      tap: isKey ? () => study.mask(j) : null,
      point: (on) => isKey && view.point(on ? j : null),
    });
  }

  pressedBeside(it, (point) => study.move("query", 0, point));

  function build() {
    const { names } = study.state;
    if (JSON.stringify(names) === shown) return;
    shown = JSON.stringify(names);
    keys = names.map((name, j) => {
      const one = movable("key_vectors", j, name);
      one.append(
        drawn("line", { class: "qp-arm" }), drawn("path", { class: "qp-dot" }), drawn("path", { class: "qp-hatch" }),
        drawn("text", { class: "qp-name" }, drawn("tspan", { class: "qp-letter" }), drawn("tspan", { class: "qp-share" })),
        drawn("circle", { class: "qp-reach", r: 15 }),
      );
      return one;
    });
    it.over.replaceChildren(...keys, query);
  }

  function draw(side) {
    build();
    const { state } = study;
    it.size(side, study.halves.keys);
    const looks = study.get("shows");
    map.hidden = looks !== "winners";
    it.under.replaceChildren(
      drawn("rect", { class: "qp-ground", width: side, height: side, "fill-opacity": map.hidden ? 1 : 0 }),
      ...it.axes(),
      ...(looks === "scores" ? contours() : []),
      ...(looks === "winners" ? regions(side) : []),
      ...projections(looks),
    );
    state.keys.forEach((key, j) => arm(keys[j], key, j));
    const [line, dot, name, reach] = query.children;
    placed(query, line, [dot, reach], state.query);
    it.label(name, state.query, 7, "query", it.y(state.query) > side - 40 ? -12 : 12);
    tell(query, it, state.query);
    it.node.setAttribute("aria-description", `${LOOKS[looks]}. ${study.sentence}`);
  }

  function placed(one, line, marks, point) {
    const [x, y] = [it.x(point), it.y(point)];
    for (const [name, value] of Object.entries({ x1: it.side / 2, y1: it.side / 2, x2: x, y2: y })) line.setAttribute(name, value);
    marks.forEach((mark) => mark.setAttribute("transform", `translate(${x} ${y})`));
  }

  function arm(one, key, j) {
    const { state: { masked, names }, found: { weights } } = study;
    const [line, dot, hatch, name, reach] = one.children;
    const off = masked.includes(j);
    const r = off ? 9 : 8 + 7 * Math.sqrt(weights[j]);
    placed(one, line, [dot, hatch, reach], key);
    dot.setAttribute("d", diamond(r));
    hatch.setAttribute("d", off ? hatchOf.diamond(r) : "");
    one.classList.toggle("qp-masked", off);
    one.classList.toggle("qp-at", study.at === j);
    const share = off ? "masked" : two(weights[j]);
    it.label(name, key, r, `${names[j]} ${share}`);
    name.children[0].textContent = names[j];
    name.children[1].textContent = ` ${share}`;
    tell(one, it, key, off ? ", masked" : `, weight ${two(weights[j])}`);
  }

  function contours() {
    const { query: q, scale } = study.state;
    const lines = scoreLines(q, scale, it.half);
    if (!lines.length) return [it.text([0, -it.half], "the query is zero: the score is 0 everywhere", "qp-small", [0, -14])];
    const across = [-q[1] / long(q), q[0] / long(q)];
    const all = lines.map(({ score, ends: [a, b] }) => it.line(a, b, Math.abs(score) < 1e-9 ? "qp-contour qp-zero" : "qp-contour"));
    return [...all, ...lines.flatMap(({ score, ends: [a, b] }) => {
      if (Math.hypot(a[0] - b[0], a[1] - b[1]) < it.half * 0.5) return [];
      // At the end of the line that lies to the left of the query, a little inside.
      const [end, other] = a[0] * across[0] + a[1] * across[1] > b[0] * across[0] + b[1] * across[1] ? [a, b] : [b, a];
      const length = Math.hypot(end[0] - other[0], end[1] - other[1]);
      const inset = (it.half * 0.09) / length;
      const spot = [0, 1].map((axis) => end[axis] + (other[axis] - end[axis]) * inset);
      return [it.text(spot, score === 0 ? "s = 0" : number(score), "qp-small")];
    })];
  }

  function projections(looks) {
    const { keys: all, query: q, masked } = study.state;
    const size = long(q);
    if (size < 1e-9) return [];
    const far = q.map((x) => (x / size) * 3 * it.half);
    const wanted = all.map((_, j) => j).filter((j) => study.at === j || (looks === "projections" && !masked.includes(j)));
    return [
      ...(wanted.length ? [it.line(far.map((x) => -x), far, "qp-along")] : []),
      ...wanted.flatMap((j) => {
        const end = foot(all[j], q);
        const turned = [(-q[1] / size) * it.half * 0.02, (q[0] / size) * it.half * 0.02];
        return [
          it.line(all[j], end, "qp-foot"),
          it.line([end[0] - turned[0], end[1] - turned[1]], [end[0] + turned[0], end[1] + turned[1]], "qp-tick"),
        ];
      }),
    ];
  }

  function regions(side) {
    const { seen } = study.found;
    const { winner, weight } = winners(study.state, it.half, CELLS);
    const [ink, paper] = [parse(view.colour("--av-series-1")), parse(view.colour("--av-paper"))];
    const least = 1 / Math.max(1, seen.length);
    const pixels = Uint32Array.from(weight, (w) => {
      const share = seen.length > 1 ? (0.3 * (w - least)) / (1 - least) : 0.3 * w;
      const [r, g, b] = paper.map((value, at) => Math.round(value + (ink[at] - value) * share));
      return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    const context = map.getContext("2d");
    map.width = map.height = CELLS;
    map.style.width = map.style.height = `${side}px`;
    context.drawImage(bitmap(pixels, CELLS, CELLS), 0, 0);
    if (seen.length < 2) return [];
    // Each name stands where its region is widest and no arrow ends.
    const { keys: all, query: q, names } = study.state;
    const ends = [...all, q].map((point) => [it.x(point) + 24 * Math.sign(point[0]), it.y(point)]);
    const taken = [...ends, [side / 2, side / 2]];
    const best = new Map();
    for (let row = 4; row < CELLS - 4; row += 3) {
      for (let column = 14; column < CELLS - 14; column += 3) {
        const j = winner[row * CELLS + column];
        const same = (dx, dy) => winner[(row + dy) * CELLS + column + dx] === j;
        if (!same(-13, -3) || !same(13, -3) || !same(-13, 3) || !same(13, 3)) continue;
        const [x, y] = [column, row].map((cell) => ((cell + 0.5) / CELLS) * side);
        const free = Math.min(...taken.map(([a, b]) => Math.hypot((a - x) / 2, b - y)), 2 * Math.min(y, side - y));
        if (free > (best.get(j)?.free ?? 14)) best.set(j, { free, x, y });
      }
    }
    return [...best].map(([j, { x, y }]) => drawn("text", { class: "qp-region", "text-anchor": "middle", x, y: y + 5, text: `${names[j]} gets most` }));
  }

  return { node, draw };
}

const number = (value) => two(value, Math.abs(value) >= 10 || Number.isInteger(Math.round(value * 1e6) / 1e6) ? 0 : Math.abs(value) < 0.095 && value ? 2 : 1);
