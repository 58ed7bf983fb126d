// The button that plays a film, picture after picture, and stops at the last one.
import { button } from "./dom.js";

/** `at()` and `last()` are numbers of pictures, `go(picture)` shows one; `pause` in milliseconds. */
export function player({ at, last, go, pause = () => 1000 }) {
  const node = button({ class: "av-button av-play", testid: "play", onclick: () => (playing ? stop() : start()) });
  let playing = null;

  function start() {
    go(at() >= last() ? 0 : at() + 1);
    playing = setInterval(() => {
      if (!node.isConnected || at() >= last()) stop();
      else go(at() + 1);
    }, pause());
    draw();
  }

  function stop() {
    clearInterval(playing);
    playing = null;
    draw();
  }

  function draw() {
    node.textContent = playing ? "Pause" : "Play";
  }

  draw();
  return { node, stop };
}
