// The scenes of points.js on a 2-D canvas, for pages without WebGL.
import { partOf, resized } from "./points.js";

export function flatRenderer(canvas) {
  const context = canvas.getContext("2d");

  function draw(scene) {
    const ratio = window.devicePixelRatio || 1;
    resized(canvas, scene.wide, scene.high, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!scene.part[0]) context.clearRect(0, 0, scene.wide, scene.high);
    for (const cloud of scene.clouds) {
      if (cloud.marks.some) drawCloud(cloud, scene, (mark) => mark === 0);
      drawCloud(cloud, scene, (mark) => mark > 0);
    }
  }

  function drawCloud({ from, to, share, colours, marks, order, turn, place, size }, { dim, part }, wanted) {
    const [first, last] = partOf({ order }, part);
    const [a, b, c, d, e, f] = turn;
    const mixed = (at) => from[at] + (to[at] - from[at]) * share;
    for (let one = first; one < last; one += 1) {
      const i = order[one];
      const mark = marks.array[i];
      if (!wanted(mark)) continue;
      const [p, q, r] = [mixed(3 * i), mixed(3 * i + 1), mixed(3 * i + 2)];
      const x = place.x + place.scale * (a * p + b * q + c * r);
      const y = place.y - place.scale * (d * p + e * q + f * r);
      const half = (size / 2) * (mark > 1 ? 1.6 : mark ? 1 : 0.8);
      context.globalAlpha = mark ? 0.85 : dim;
      context.fillStyle = `rgb(${colours[4 * i]},${colours[4 * i + 1]},${colours[4 * i + 2]})`;
      if (size < 3) context.fillRect(x - half, y - half, 2 * half, 2 * half);
      else shape(context, x, y, half, colours[4 * i + 3] > 0);
    }
    context.globalAlpha = 1;
  }

  return { draw, free() {}, lost: () => false, kind: "2d" };
}

/** A disc or a triangle, as in the shader. */
export function shape(context, x, y, half, triangle) {
  context.beginPath();
  if (triangle) {
    context.moveTo(x, y - 1.1 * half);
    context.lineTo(x + 1.1 * half, y + 0.9 * half);
    context.lineTo(x - 1.1 * half, y + 0.9 * half);
    context.closePath();
  } else {
    context.arc(x, y, half, 0, 7);
  }
  context.fill();
}
