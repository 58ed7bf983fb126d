import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { live, viewOf } from "#parts/lifecycle.js";
import { modelOf } from "#parts/page_model.js";

/** As much of a page as the life of a front end needs. */
class Node {
  constructor() {
    Object.assign(this, { dataset: {}, attributes: {}, heard: {}, isConnected: true, clientWidth: 800 });
  }
  setAttribute = (name, value) => (this.attributes[name] = value);
  getAttribute = (name) => this.attributes[name] ?? null;
  addEventListener = (event, listener) => (this.heard[event] = listener);
  append() {}
  classList = { contains: () => false };
}

let waiting, sizes, pages, body, colour;

beforeEach(() => {
  [waiting, sizes, pages, body, colour] = [[], [], [], new Node(), "red"];
  const observer = (all) => class {
    constructor(callback) {
      this.callback = callback;
      all.push(this);
    }
    observe() {
      this.watching = true;
    }
    disconnect() {
      this.watching = false;
    }
  };
  globalThis.document = { createElement: () => new Node(), body, documentElement: new Node() };
  globalThis.window = { matchMedia: () => ({ matches: false, addEventListener() {}, removeEventListener() {} }) };
  globalThis.requestAnimationFrame = (act) => waiting.push(act);
  globalThis.getComputedStyle = () => ({ getPropertyValue: () => ` ${colour} ` });
  globalThis.ResizeObserver = observer(sizes);
  globalThis.MutationObserver = observer(pages);
});

const frame = () => waiting.splice(0).forEach((act) => act());

function started(state = {}, options = {}) {
  const model = modelOf({ theme: "light", head: 0, ...state });
  const view = viewOf("attnlab-test", "A test", "test");
  const counted = { draws: 0 };
  const stop = live({ model, view, traits: ["head"], draw: () => (counted.draws += 1), ...options });
  return { model, view, counted, stop };
}

test("it is drawn at once, and once for all changes of a frame", () => {
  const { model, view, counted } = started();
  assert.equal(counted.draws, 0);
  frame();
  assert.equal(counted.draws, 1);
  model.set({ head: 1, layer: 3 });
  model.set("head", 2);
  view.changed();
  frame();
  assert.equal(counted.draws, 2);
  assert.equal(view.root.dataset.drawn, "2");
  model.set("layer", 4);
  frame();
  assert.equal(counted.draws, 2);
});

test("other events of the model go to their own listeners", () => {
  let loads = 0;
  const { model, counted, stop } = started({ data: 1 }, { on: { "change:data": () => (loads += 1) } });
  frame();
  model.set("data", 2);
  frame();
  assert.deepEqual([loads, counted.draws], [1, 1]);
  stop();
  model.set("data", 3);
  assert.equal(loads, 1);
});

test("the theme is the trait's, or the page's, and colours are asked for again", () => {
  const { model, view, counted } = started();
  frame();
  assert.deepEqual([view.dark, view.root.dataset.theme, view.series(1)], [false, "light", "red"]);
  colour = "green";
  assert.equal(view.series(1), "red");
  model.set("theme", "dark");
  assert.deepEqual([view.dark, view.root.dataset.theme, view.series(1)], [true, "dark", "green"]);
  model.set("theme", "auto");
  assert.equal(view.dark, false);
  body.setAttribute("data-jp-theme-light", "false");
  pages[0].callback();
  assert.equal(view.dark, true);
  frame();
  assert.equal(counted.draws, 2);
});

test("a change of the width draws again and names the size, one of the height does not", () => {
  const { view, counted } = started({}, { sizes: ["room", { three: 900, two: 600, one: 0 }] });
  frame();
  assert.equal(view.root.dataset.room, "two");
  const resized = (wide) => {
    view.root.clientWidth = wide;
    sizes[0].callback();
    frame();
  };
  resized(900);
  assert.deepEqual([view.root.dataset.room, counted.draws], ["three", 2]);
  resized(900);
  assert.equal(counted.draws, 2);
  resized(599);
  assert.deepEqual([view.root.dataset.room, counted.draws], ["one", 3]);
});

test("once stopped it follows nothing", () => {
  const { model, counted, stop } = started();
  frame();
  stop();
  model.set({ head: 1, theme: "dark" });
  frame();
  assert.equal(counted.draws, 1);
  assert.deepEqual([...sizes, ...pages].map(({ watching }) => watching), [false, false]);
});

test("keys stay with the widget, in JupyterLab and in Notebook 7", () => {
  const { view: { root } } = started();
  const [target, mark] = [new Node(), "data-lm-suppress-shortcuts"];
  root.heard.focusin({ target });
  assert.deepEqual([root.attributes[mark], target.attributes[mark]], ["true", "true"]);
  let stopped = false;
  root.heard.keydown({ stopPropagation: () => (stopped = true) });
  assert.ok(stopped);
});
