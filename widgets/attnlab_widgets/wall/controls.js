// The slim row: length, weights, direction, head, filter and order.
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { lengthSaid } from "#lib/wall.js";

const HELP = `Each tile is one attention mechanism on the same sentence. Row i of its map shows how much position i takes from every other one: the colour goes by the square root of the weight, from 0 (dark) to 1 (bright); hatched means that the mechanism does not let the pair meet. A cell with a frame is the only key of its query, so that its weight is always 1. Blue and orange maps have weights of both signs, and go to their largest.

The projections are borrowed: the vectors and the projections (queries, keys, values, output) of one layer of a small language model go into every mechanism, so that the maps differ by the mechanism alone. That layer was trained to see the past alone, so “past only” is how the wall begins; with “both sides” even full attention does what nobody trained it for. What only one mechanism has is untrained: its tile says so, and names it when it is opened. No mechanism was trained as such.

Full attention stands first, whatever the order.

Point at a map to follow one pair through all of them, or at a word; click a tile, or press Enter, to open it. The slider goes beyond the sentence: the maps stay, FLOPs and memory follow.

What stands around attention is shown by its own pictures: choose it at “Show”.`;

const SHELVES = [["mechanisms", "mechanisms"], ["feed", "feed-forward layers"], ["join", "joins"], ["depth", "depth"], ["objective", "objectives"], ["compress", "compression"]];

export function controls(store, view) {
  const { lengths, heads } = store.wall;
  const length = slider("Length", "length", { min: 0, max: lengths.length - 1, step: 1 }, (at) => store.set({ length: lengths[at] }));
  const weights = choice("Projections", "weights", [["borrowed", "borrowed"], ["random", "random"]], (value) => store.set({ weights: value }));
  const causal = choice("Direction", "causal", [["1", "past only"], ["", "both sides"]], (value) => store.set({ causal: value !== "" }));
  const headNames = [["", "mean"], ...Array.from({ length: heads }, (_, at) => [String(at), String(at)])];
  const head = choice("Head", "head", headNames, (value) => store.set({ head: value === "" ? null : Number(value) }));
  const order = choice("Order", "order", [["year", "year"], ["family", "family"], ["cost", "cost"], ["name", "name"]], (value) => store.set({ order: value }));
  const families = [...new Set(store.wall.tiles.map(({ family }) => family))];
  const family = choice("Family", "family", [["", "all"], ...families.map((name) => [name, name])], (value) => store.set({ family: value }));
  const seeing = choice("Mechanisms", "seeing", [["all", "all"], ["few", "eight to begin with"], ["causal", "that can be causal"], ["both sides", "that can use both sides"]], (value) => store.set({ seeing: value }));
  const shelf = choice("Show", "shelf", SHELVES, (value) => store.set({ shelf: value, opened: "" }));
  length.node.classList.add("wl-length");
  const row = bar({
    frequent: [length.node, weights.node, causal.node, head.node, order.node],
    more: [family.node, seeing.node],
    help: HELP,
    label: "What the wall shows",
  });

  const ofMechanisms = [length, weights, causal, head].map(({ node }) => node);
  ofMechanisms.push(row.node.querySelector("[data-testid=more]").parentElement);

  function draw() {
    shelf.select.value = store.get("shelf");
    for (const node of ofMechanisms) node.hidden = !store.mechanisms;
    const { n } = store;
    const said = lengthSaid(store.get("length"), n);
    length.input.value = store.at;
    length.input.setAttribute("aria-valuetext", said);
    length.output.textContent = said;
    weights.select.value = store.get("weights");
    causal.select.value = store.get("causal") ? "1" : "";
    head.select.value = store.get("head") === null ? "" : String(store.get("head"));
    order.select.value = store.get("order");
    family.select.value = store.get("family");
    seeing.select.value = store.get("seeing");
  }

  return { node: row.node, shelf: shelf.node, draw };
}
