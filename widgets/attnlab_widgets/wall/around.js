// The other shelves: a page is a tile with the picture of its role; opened, it says what it claims and shows what it does.
import { el, plain } from "#parts/dom.js";
import { moved } from "#lib/keys.js";
import { shortTitle } from "#lib/wall.js";
import { equation } from "./mathml.js";

/** A picture that Python has drawn, as a node; a tile shows the part of it that `crop` names. */
function picture(page, crop = null) {
  const svg = document.importNode(new DOMParser().parseFromString(page.picture, "image/svg+xml").documentElement, true);
  svg.removeAttribute("style");
  svg.setAttribute("class", crop ? "wl-part-small" : "wl-part-large");
  if (crop) {
    const [wide, top, high] = crop;
    svg.setAttribute("viewBox", `0 ${top} ${wide} ${high}`);
    svg.setAttribute("aria-hidden", "true");
  }
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  return svg;
}

export function aroundPanel(store, view) {
  const list = el("ul", { class: "wl-tiles wl-parts", "aria-label": "Pages. Arrow keys move, Enter opens.", "data-testid": "parts" });
  const node = el("div", { class: "wl-pages", hidden: true }, list);
  let shown = [];
  let focus = "";
  let told = null;

  const buttons = () => [...list.querySelectorAll("button")];

  function make(page) {
    const [label, said] = page.claims[0];
    const button = el(
      "button",
      { type: "button", class: "wl-tile", tabindex: -1, "data-name": page.name, "data-testid": "part", "aria-label": `${page.title}, ${page.year}. ${label}: ${said}. ${page.words}`, onclick: () => view.open(page.name) },
      el("span", { class: "wl-title", text: shortTitle(page.title), title: page.title }),
      picture(page, page.crop),
      el("span", { class: "wl-gives", text: `${page.year} · ${label}: ${said}` }),
    );
    button.addEventListener("focus", () => {
      focus = page.name;
      roving();
    });
    return el("li", {}, button);
  }

  function roving() {
    if (!shown.some(({ name }) => name === focus)) focus = shown[0]?.name ?? "";
    for (const button of buttons()) button.tabIndex = button.dataset.name === focus ? 0 : -1;
  }

  list.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const columns = getComputedStyle(list).gridTemplateColumns.split(" ").length;
    const next = moved(shown.findIndex(({ name }) => name === focus), shown.length, event.key, columns);
    if (next === null) return;
    event.preventDefault();
    buttons()[next].focus();
  });

  function draw() {
    node.hidden = store.get("shelf") === "mechanisms";
    if (node.hidden) return;
    shown = store.around;
    const names = shown.map(({ name }) => name).join();
    if (names !== told) list.replaceChildren(...shown.map(make));
    told = names;
    roving();
  }

  return { node, draw, focus: (name) => buttons().find((button) => button.dataset.name === name)?.focus() };
}

/** What an opened page shows: its picture to the left, all else to the right. */
export function aboutPage(page, links) {
  const rows = [...page.claims, ["forms", page.forms], ...page.departures.map((text) => ["departs from the paper", text])];
  return [
    el("p", { class: "wl-lead", text: page.summary }),
    el("dl", { class: "wl-list" }, ...rows.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })])),
    ...(page.equation ? [el("div", { class: "wl-equation", tabindex: 0, role: "region", "aria-label": "Equation", "data-testid": "equation" }, Array.isArray(page.equation) ? equation(page.equation) : page.equation)] : []),
    ...(page.demo ? [el("h4", { text: "In ten seconds" }), el("pre", { class: "wl-code", tabindex: 0, "data-testid": "demo", text: page.demo })] : []),
    el("h4", { text: "The code of naive" }),
    el("pre", { class: "wl-code", tabindex: 0, "data-testid": "code", text: page.code }),
    links,
  ];
}

export const pagePicture = (page) => el("figure", { class: "wl-part" }, picture(page), el("figcaption", { class: "av-quiet", text: page.words }));
