import assert from "node:assert/strict";
import test from "node:test";
import { frames, whereThereIsRoom } from "#parts/frames.js";

test("what is asked for several times is done once, with the next frame", () => {
  let frame = null;
  globalThis.requestAnimationFrame = (act) => (frame = act);
  const done = [];
  const [later, one, other] = [frames(), () => done.push("one"), () => done.push("other")];
  [one, other, one].forEach(later);
  assert.deepEqual(done, []);
  frame();
  assert.deepEqual(done, ["one", "other"]);
  later(one);
  frame();
  assert.deepEqual(done, ["one", "other", "one"]);
});

function drawing(t, root) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const counted = { draws: 0 };
  return [counted, whereThereIsRoom(root, (act) => act(), () => (counted.draws += 1))];
}

function pass(t, seconds) {
  for (let tenths = 0; tenths < 10 * seconds; tenths += 1) t.mock.timers.tick(100);
}

test("what is folded for a moment is drawn when it has room again", (t) => {
  const root = { isConnected: true, clientWidth: 0 };
  const [counted, draw] = drawing(t, root);
  draw();
  pass(t, 0.1);
  assert.equal(counted.draws, 0);
  root.clientWidth = 800;
  pass(t, 0.1);
  assert.equal(counted.draws, 1);
  pass(t, 10);
  assert.equal(counted.draws, 1);
});

test("what stays folded, or has left the page, is not tried for ever", (t) => {
  const root = { isConnected: true, clientWidth: 0 };
  const [counted, draw] = drawing(t, root);
  draw();
  pass(t, 2);
  root.clientWidth = 800;
  pass(t, 2);
  assert.equal(counted.draws, 0);
  draw();
  assert.equal(counted.draws, 1);
  Object.assign(root, { isConnected: false, clientWidth: 0 });
  draw();
  Object.assign(root, { isConnected: true, clientWidth: 800 });
  pass(t, 2);
  assert.equal(counted.draws, 1);
});
