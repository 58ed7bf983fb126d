// Sentences about points.
import { weight } from "#lib/words.js";

const AROUND = 7; // tokens on each side

/** “sat”, query, position 3 of sequence 4. */
export function named(study, side, row) {
  const set = study.setOf(side);
  return `“${set.short(row)}” · ${side} · position ${set.position[row]} of ${what(set)} ${set.sequence[row]}${set.labels ? ` · ${set.classes[set.labels[row]]}` : ""}`;
}

export const what = (set) => (set.images ? "image" : "sequence");

/** The text around a token, shortened. */
export function context(set, row) {
  const rows = set.rows[set.sequence[row]];
  const at = set.rank[row];
  const texts = rows.map((one) => shown(set, one));
  const glue = spaced(set) ? "" : " ";
  const before = texts.slice(Math.max(0, at - AROUND), at).join(glue);
  const after = texts.slice(at + 1, at + 1 + AROUND).join(glue);
  return {
    before: (at > AROUND ? "… " : "") + before + (before && glue),
    token: texts[at],
    after: (after && glue) + after + (at + 1 + AROUND < texts.length ? " …" : ""),
  };
}

/** Texts that hold their own spaces are written one after another. */
const spaced = (set) => (set.own ??= set.texts.some(([short, full = short]) => /^[ ␣Ġ▁]\S/u.test(full)));

function shown(set, row) {
  const text = set.short(row);
  return spaced(set) ? text.replace(/[␣Ġ▁]/gu, " ") : text;
}

/** The strongest partners of the chosen point, in words: they may be out of sight. */
export function partnersSaid(study) {
  const { side, row } = study.selected;
  const set = study.setOf(side === "query" ? "key" : "query");
  const list = study.partners(side, row).slice(0, 4).map((one) => `${set.short(one.row)} at ${set.position[one.row]} (${weight(one.w, 0.02)})`);
  const who = side === "query" ? "attends most to" : "is a strongest key of";
  return `“${study.setOf(side).short(row)}” at ${study.setOf(side).position[row]} ${who} ${list.join(", ") || "no token that was kept"}.`;
}

const NEAREST = 10;

/** Of the nearest points of the other kind on the map, how many never met the chosen one. */
export function aroundIt(study) {
  const { side, row } = study.selected;
  const other = side === "query" ? "key" : "query";
  const { q } = study.sets();
  const places = study.places(study.chosen);
  const start = side === "query" ? q.n : 0;
  const [set, mine] = [study.setOf(other), 3 * (row + (side === "query" ? 0 : q.n))];
  const near = []; // the nearest so far, nearest first
  for (let one = 0; one < set.n; one += 1) {
    const at = 3 * (start + one);
    const d = (places[at] - places[mine]) ** 2 + (places[at + 1] - places[mine + 1]) ** 2 + (places[at + 2] - places[mine + 2]) ** 2;
    if (near.length === NEAREST && d >= near[NEAREST - 1].d) continue;
    const rank = near.findIndex((other) => d < other.d);
    near.splice(rank < 0 ? near.length : rank, 0, { one, d });
    near.length = Math.min(NEAREST, near.length);
  }
  const strangers = near.filter(({ one }) => set.sequence[one] !== study.sequence).length;
  const others = other === "key" ? "keys" : "queries";
  if (!strangers) return `All ${near.length} nearest ${others} on the map are of the same ${what(set)}.`;
  const which = strangers === near.length ? `All ${near.length} nearest ${others}` : `Of the ${near.length} nearest ${others}, ${strangers}`;
  return `${which} on the map belong to other ${what(set)}s: there was no attention between ${strangers === 1 ? "it" : "them"} and this ${side}.`;
}
