// Where a map is seen from. All lengths are CSS pixels; points have coordinates from -1 to 1.

export const MARGIN = 22;
const MOST_ZOOM = 24;

export const still = () => ({ x: 0, y: 0, zoom: 1, yaw: 0.6, pitch: 0.4 });

/** Rows of the turn by yaw, then by pitch; no turn in two dimensions. */
export function turn({ yaw, pitch }, dimensions) {
  if (dimensions < 3) return [1, 0, 0, 0, 1, 0, 0, 0, 1];
  const [c, s, d, t] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
  return [c, 0, s, s * t, d, -c * t, -s * d, t, c * d];
}

/** Pixels per unit, and the pixel where the middle of the map lies. */
export function placing(camera, wide, high, dimensions) {
  const room = Math.min(wide, high) / 2 - MARGIN;
  const scale = Math.max(8, room) * camera.zoom * (dimensions === 3 ? 0.82 : 1);
  return { scale, x: wide / 2 + camera.x, y: high / 2 + camera.y };
}

/** x and y of every point on the screen. */
export function onScreen(places, camera, wide, high, dimensions, out = new Float32Array((places.length / 3) * 2)) {
  const [a, b, c, d, e, f] = turn(camera, dimensions);
  const { scale, x, y } = placing(camera, wide, high, dimensions);
  for (let i = 0, j = 0; i < places.length; i += 3, j += 2) {
    const [p, q, r] = [places[i], places[i + 1], places[i + 2]];
    out[j] = x + scale * (a * p + b * q + c * r);
    out[j + 1] = y - scale * (d * p + e * q + f * r);
  }
  return out;
}

/** Closer or farther by `factor`, with the pixel (x, y) from the middle of the screen kept in place. */
export function zoomed(camera, factor, x, y, least = 1, most = MOST_ZOOM) {
  const zoom = Math.min(most, Math.max(least, camera.zoom * factor));
  const by = zoom / camera.zoom;
  if (zoom === least) return { ...camera, zoom, x: 0, y: 0 };
  return { ...camera, zoom, x: x - (x - camera.x) * by, y: y - (y - camera.y) * by };
}

/** Moved by pixels, but no farther than half a screen beyond the end of what is shown. */
export function panned(camera, dx, dy, wide, high) {
  const limit = (size) => (size / 2) * camera.zoom;
  const held = (value, most) => Math.min(most, Math.max(-most, value));
  return { ...camera, x: held(camera.x + dx, limit(wide)), y: held(camera.y + dy, limit(high)) };
}

/** The nearest of the points to a pixel, within `reach`; -1 where there is none. */
export function nearest(screen, x, y, reach, allowed = null) {
  let [best, found] = [reach * reach, -1];
  for (let i = 0; 2 * i < screen.length; i += 1) {
    if (allowed && !allowed(i)) continue;
    const distance = (screen[2 * i] - x) ** 2 + (screen[2 * i + 1] - y) ** 2;
    if (distance < best) [best, found] = [distance, i];
  }
  return found;
}

/** Cells of a grid over the screen: `columns` side by side, `count` in all. */
export function gridOf(count, columns, wide, high, gutter) {
  const rows = Math.ceil(count / columns);
  const [w, h] = [(wide - gutter.left) / columns, (high - gutter.top) / rows];
  return { rows, columns, w, h, ...gutter };
}

/** The box of a cell under a camera whose middle is that of the screen. */
export function cellBox(grid, row, column, camera, wide, high) {
  const middle = (size, at) => (at - size / 2) * camera.zoom + size / 2;
  return {
    x: middle(wide, grid.left + column * grid.w) + camera.x,
    y: middle(high, grid.top + row * grid.h) + camera.y,
    w: grid.w * camera.zoom,
    h: grid.h * camera.zoom,
  };
}
