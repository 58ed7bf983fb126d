// Drawing: at most once a frame, and where there is room.

/** `later(act)` does each act once with the next frame, however often it was asked. */
export function frames() {
  const waiting = new Set();
  return function later(act) {
    if (!waiting.size) {
      requestAnimationFrame(() => {
        const acts = [...waiting];
        waiting.clear();
        acts.forEach((one) => one());
      });
    }
    waiting.add(act);
  };
}

const TRIES = 10;

/**
 * `draw`, where the root has room. JupyterLab folds its panels for a moment when its theme changes:
 * too short for an observer of sizes to notice, long enough for a drawing to find no room. So it is
 * tried again for a second; of a longer fold the observer tells.
 */
export function whereThereIsRoom(root, later, draw) {
  let tries = 0;
  return function drawn() {
    if (root.isConnected && root.clientWidth) {
      tries = 0;
      draw();
    } else if (root.isConnected && tries < TRIES) {
      tries += 1;
      setTimeout(() => later(drawn), 100);
    }
  };
}
