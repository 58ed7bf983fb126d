// The same numbers as tables of text. They are filled when they are opened.
import { balanceOf, meanOf, shareOf } from "./experts.js";
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    body.replaceChildren(...[experts(), tokens(), training()].filter(Boolean));
  }

  function experts() {
    const { layer, state } = study;
    const rows = layer.wanted.map((wanted, expert) => {
      const asked = layer.queue.slice(0, state.placed).filter(([i, c]) => layer.chosen[i * layer.k + c] === expert).length;
      return [expert, wanted, Math.min(asked, state.capacity), Math.max(0, asked - state.capacity), two(shareOf(layer, expert)), layer.router ? two(meanOf(layer, expert)) : "–"];
    });
    const balance = balanceOf(layer);
    const more = balance === null ? "" : `The balance loss E Σ f P is ${two(balance)}.`;
    return headed("Experts", ["expert", "chosen", "computes", "drops", "share of first choices f", "mean probability P"], rows, "experts-table", more);
  }

  function tokens() {
    const { layer, tokens: names } = study;
    const rows = names.map((name, i) => {
      const said = study.choices(i).map(({ expert, gate, lost, waiting }) => `${expert} (${two(gate)}${lost && !waiting ? ", dropped" : ""})`);
      return [i, name, said.join("; ") || "none", layer.router ? two(Math.max(...layer.router.subarray(i * layer.experts, (i + 1) * layer.experts))) : "–"];
    });
    return headed("Tokens", ["token", "text", "experts (gate)", "highest probability"], rows, "tokens-table");
  }

  function training() {
    if (!study.history) return null;
    const { history: { steps, shares, balance }, state, layer } = study;
    const columns = Array.from({ length: layer.experts }, (_, expert) => `expert ${expert}`);
    const rows = steps.map((step, at) => [step, ...shares[state.layer][at].map((share) => two(share)), ...(balance ? [two(balance[state.layer][at])] : [])]);
    return headed("Share of the tokens by expert while it was trained", ["step", ...columns, ...(balance ? ["balance loss"] : [])], rows, "training-table");
  }

  return { node, draw };
}
