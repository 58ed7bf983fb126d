// A model for a page without a kernel: the saved state, read from the page itself.
import { fromText } from "../lib/base85.js";

export async function pageModel(state) {
  const pairs = Object.entries(state).map(async ([name, value]) => [name, await opened(value)]);
  const values = new Map(await Promise.all(pairs));
  const listeners = new Map();
  const tell = (event) => [...(listeners.get(event) ?? [])].forEach((listener) => listener());
  return {
    get: (name) => values.get(name),
    set(name, value) {
      const changed = typeof name === "string" ? { [name]: value } : name;
      for (const [key, one] of Object.entries(changed)) {
        if (values.get(key) === one) continue;
        values.set(key, one);
        tell(`change:${key}`);
      }
      tell("change");
    },
    on(event, listener) {
      for (const one of event.split(" ")) listeners.set(one, [...(listeners.get(one) ?? []), listener]);
    },
    off(event, listener) {
      if (!event) listeners.clear();
      else listeners.set(event, (listeners.get(event) ?? []).filter((one) => one !== listener));
    },
    save_changes() {},
    send() {},
  };
}

async function opened(value) {
  if (value === null || typeof value !== "object" || !("deflated" in value)) return value;
  const inflated = new Blob([fromText(value.deflated)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new DataView(await new Response(inflated).arrayBuffer());
}

/** Mount a widget on a page that save_html wrote. */
export async function mountPage(widget, document) {
  const state = JSON.parse(document.querySelector("script[data-attnlab-state]").textContent);
  const el = document.querySelector("[data-attnlab-widget]");
  widget.render({ model: await pageModel(state), el });
}
