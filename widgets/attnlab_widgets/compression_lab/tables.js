// The same numbers as tables of text. They are filled when they are opened.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { leftOf } from "./compress.js";
import { share, size } from "./words.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    body.replaceChildren(right(), matrices());
  }

  function right() {
    const { state, lab: { shares, bits }, network } = study;
    const rows = shares.map((kept) => {
      const masks = network.masks({ ...state, kept });
      const now = (width) => (study.grid ? share(study.score(kept, width)[0]) : "—");
      return [share(kept), ...bits.map(now), ...[32, state.bits].map((width) => size(network.size(masks, { ...state, kept, bits: width })))];
    });
    return headed(`${network.told.name}, ${state.cut}: what is right`, ["kept", ...bits.map((width) => `${width} bits`), "bytes, 32 bits", `bytes, ${state.bits} bits`], rows, "right-table");
  }

  function matrices() {
    const { network, masks } = study;
    const rows = network.told.matrices.map((name) => {
      const [shape, mask] = [network.shape(name), masks.get(name)];
      const all = shape[0] * shape[1];
      const left = mask ? leftOf(mask) : all;
      return [name.replace(/\.weight$/, ""), shape.join(" × "), all, left, share(left / all)];
    });
    return headed("What is left of each matrix", ["matrix", "shape", "weights", "left", "share"], rows, "matrices-table");
  }

  return { node, draw };
}
