// A model for a page without a kernel: the saved state, read from the page itself.

export function modelOf(state) {
  const values = new Map(Object.entries(state));
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

/** Mount a widget on a page that save_html wrote; of a state with bytes, page.js has what unpacks it. */
export async function mountOn(document, widget, unpacked = (state) => state) {
  const state = JSON.parse(document.querySelector("script[data-attnlab-state]").textContent);
  const el = document.querySelector("[data-attnlab-widget]");
  widget.render({ model: modelOf(await unpacked(state)), el });
}
