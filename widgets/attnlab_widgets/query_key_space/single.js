// One head, large: labels, the token that is pointed at, its sequence and its strongest keys.
import { el } from "#parts/dom.js";
import { nearest, onScreen, panned, placing, still, turn, zoomed } from "./camera.js";
import { crowd, inside, placed } from "#lib/labelling.js";
import { context, named, partnersSaid } from "./words.js";

const REACH = 12; // pixels from the pointer to a point
const LABELS = 48;
const TURN = 0.008; // radians for a pixel

export function singleView(study, view) {
  const place = { camera: still() };
  const tip = el("div", { class: "qk-tip", hidden: true, "data-testid": "tip" });
  let loop = null; // what is being drawn around
  let screen = null;

  const dimensions = () => study.map.dimensions;

  /** x and y of every point, queries before keys. */
  function points() {
    const { from, to, share } = view.motion(study.chosen);
    const places = share === 1 ? to : to.map((x, i) => from[i] + (x - from[i]) * share);
    const known = JSON.stringify([place.camera, view.wide, view.high]);
    if (screen?.places !== places || screen.known !== known) {
      screen = { places, known, at: onScreen(places, place.camera, view.wide, view.high, dimensions(), screen?.at.length * 1.5 === places.length ? screen.at : undefined) };
    }
    return screen.at;
  }

  const spot = (side, row) => {
    const at = 2 * (row + (side === "key" ? study.sets().q.n : 0));
    return [points()[at], points()[at + 1]];
  };

  function of(i) {
    const { n } = study.sets().q;
    return i < n ? { side: "query", row: i } : { side: "key", row: i - n };
  }

  function clouds() {
    const count = study.sets().q.n + study.sets().k.n;
    return view.clouds(study.chosen, {
      place: placing(place.camera, view.wide, view.high, dimensions()),
      size: Math.min(9, Math.max(count > 20_000 ? 2.5 : 4, 220 / Math.sqrt(count)) * Math.min(1.6, place.camera.zoom ** 0.25)),
      turn: turn(place.camera, dimensions()),
    });
  }

  function overlay(pen) {
    if (study.selected) lines(pen);
    if (study.typed()) own(pen, study.typed());
    if (study.get("labels") && !view.moving()) labels(pen);
    if (study.selected) ring(pen, study.selected, 2.5);
    if (study.at) ring(pen, study.at, 1.5);
    if (loop) around(pen);
    hint();
  }

  /** From the chosen point to its partners, all of its own sequence; as wide as the weight. */
  function lines(pen) {
    const { side, row } = study.selected;
    const [x, y] = spot(side, row);
    for (const { row: other, w } of study.partners(side, row)) {
      line(pen, [x, y], spot(side === "query" ? "key" : "query", other), w);
    }
  }

  function line(pen, [x, y], [u, v], w) {
    pen.strokeStyle = view.colour("--av-ink");
    pen.globalAlpha = 0.25 + 0.7 * Math.sqrt(w);
    pen.lineWidth = 0.8 + 6 * w;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(u, v);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  const typedSpots = (typed) => onScreen(typed.places, place.camera, view.wide, view.high, dimensions());

  /** The typed sentence: the chosen token's lines. */
  function own(pen, typed) {
    if (!study.typedAt) return;
    const at = typedSpots(typed);
    const n = typed.tokens.length;
    const where = (i) => [at[2 * i], at[2 * i + 1]];
    const { query, key } = study.typedAt;
    const mine = query ?? key + n;
    for (const [other, w] of study.typedPartners(typed)) line(pen, where(mine), where(query === undefined ? other : other + n), w);
    circle(pen, where(mine), 2.5);
  }

  function ring(pen, { side, row }, width) {
    circle(pen, spot(side, row), width);
  }

  function circle(pen, [x, y], width) {
    pen.strokeStyle = view.colour("--av-ink");
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, 8.5, 0, 7);
    pen.stroke();
  }

  function labels(pen) {
    const at = points();
    const marks = study.marks(study.chosen);
    const wanted = [];
    const add = (i, strong) => {
      const { side, row } = of(i);
      wanted.push({ i, side, strong, text: study.setOf(side).short(row), x: at[2 * i], y: at[2 * i + 1] });
    };
    const { n } = study.sets().q;
    const typed = study.typed();
    if (typed) {
      const spots = typedSpots(typed);
      for (let i = 0; 2 * i < spots.length; i += 1) {
        wanted.push({ strong: true, text: typed.tokens[i % typed.tokens.length][0], x: spots[2 * i], y: spots[2 * i + 1] });
      }
    }
    if (study.selected) {
      const { side, row } = study.selected;
      add(row + (side === "key" ? n : 0), true);
      for (const one of study.partners(side, row)) add(one.row + (side === "key" ? 0 : n), true);
    }
    for (const i of study.order(marks.array.length)) {
      if (!marks.some || marks.array[i] === 2) add(i, false);
      if (wanted.length > 1500) break;
    }
    pen.font = view.font;
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const measure = (text) => pen.measureText(text).width;
    for (const one of placed(wanted, measure, { wide: view.wide, high: view.high, most: LABELS, crowded: crowd(at, view.wide, view.high), hides: marks.some ? Infinity : 2 })) {
      pen.lineWidth = 3;
      pen.strokeStyle = view.colour("--av-paper");
      pen.globalAlpha = 0.85;
      pen.strokeText(one.text, one.at, one.y);
      pen.globalAlpha = 1;
      pen.fillStyle = view.colour(one.strong ? "--av-ink" : "--av-quiet");
      pen.fillText(one.text, one.at, one.y);
    }
  }

  function around(pen) {
    pen.beginPath();
    for (let i = 0; i < loop.length; i += 2) pen.lineTo(loop[i], loop[i + 1]);
    pen.closePath();
    pen.fillStyle = view.colour("--av-mark");
    pen.strokeStyle = view.colour("--av-accent");
    pen.lineWidth = 1.5;
    pen.globalAlpha = 0.35;
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
  }

  /** What is pointed at, in its sentence. */
  function hint() {
    tip.hidden = !study.at || Boolean(loop);
    if (tip.hidden) return;
    const { side, row } = study.at;
    const [x, y] = spot(side, row);
    const { before, token, after } = context(study.setOf(side), row);
    tip.replaceChildren(
      el("div", { class: "qk-tip-name", text: named(study, side, row) }),
      el("div", { class: "qk-tip-text" }, el("bdi", {}, before, el("strong", { text: token }), after)),
    );
    const left = Math.min(Math.max(4, x + 14), Math.max(4, view.wide - tip.offsetWidth - 4));
    const top = y + 16 + tip.offsetHeight > view.high ? y - tip.offsetHeight - 12 : y + 14;
    tip.style.transform = `translate(${left}px, ${Math.max(2, top)}px)`;
  }

  function enclosed() {
    const at = points();
    const { n } = study.sets().q;
    const found = { query: [], key: [] };
    for (let i = 0; 2 * i < at.length; i += 1) {
      if (inside(loop, at[2 * i], at[2 * i + 1])) found[i < n ? "query" : "key"].push(i < n ? i : i - n);
    }
    return found;
  }

  return {
    place,
    /** Chooses the token before (-1) or after (1) in the sequence, or the other side (0). */
    next(by) {
      const { side, row } = study.selected ?? { side: "key", row: 0 };
      const to = by ? side : side === "query" ? "key" : "query";
      const [own, other] = [study.setOf(side), study.setOf(to)];
      const rows = other.rows[own.sequence[row]] ?? [];
      const at = Math.min(rows.length - 1, Math.max(0, own.rank[row] + by));
      if (!rows.length) return "there is no token on the other side";
      study.select(to, rows[at]);
      return `${named(study, to, rows[at])}. ${partnersSaid(study)}`;
    },
    below: [tip],
    clouds,
    overlay,
    leave: () => (tip.hidden = true),
    reset: () => (place.camera = still()),
    zoom(factor, x = view.wide / 2, y = view.high / 2) {
      if (factor < 1 && place.camera.zoom === 1) {
        study.set({ view: "all" });
        return;
      }
      place.camera = zoomed(place.camera, factor, x - view.wide / 2, y - view.high / 2);
    },
    drag(x, y, dx, dy, shift) {
      study.at = null;
      if (loop || shift || view.lasso()) (loop ??= []).push(x, y);
      else if (dimensions() === 3) place.camera = { ...place.camera, yaw: place.camera.yaw + TURN * dx, pitch: place.camera.pitch + TURN * dy };
      else place.camera = panned(place.camera, dx, dy, view.wide, view.high);
    },
    dropped() {
      if (!loop) return;
      const found = enclosed();
      loop = null;
      view.drawn(found.query.length + found.key.length ? found : null);
    },
    point(x, y) {
      const i = x === null ? -1 : nearest(points(), x, y, REACH, allowed());
      const found = i < 0 ? null : of(i);
      if (JSON.stringify(found) === JSON.stringify(study.at)) return;
      study.at = found;
      view.hovered();
    },
    click(x, y) {
      const typed = study.typed();
      const mine = typed ? nearest(typedSpots(typed), x, y, REACH) : -1;
      if (mine >= 0) {
        const n = typed.tokens.length;
        study.typedAt = mine < n ? { query: mine } : { key: mine - n };
        study.changed();
        return;
      }
      const i = nearest(points(), x, y, REACH, allowed());
      if (i < 0) study.select();
      else study.select(of(i).side, of(i).row);
    },
  };

  /** Where some points are dim, only the others answer, unless there is none near. */
  function allowed() {
    const marks = study.marks(study.chosen);
    return marks.some && !study.selected ? (i) => marks.array[i] === 2 : null;
  }
}

