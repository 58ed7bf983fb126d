// Points by WebGL: discs and triangles, as many as there are. Where a page has no WebGL, flat.js
// draws the same with a 2-D canvas, only slower.
import { flatRenderer } from "./flat.js";

// colour.a says which shape: 0 a disc, 1 a triangle. mark: 0 dim, 1 as it is, 2 large.
const VERTEX = `
attribute vec3 from, to; attribute vec4 colour; attribute float mark;
uniform mat3 turn; uniform vec4 place; uniform float share, size, only, opacity; uniform mediump float flat_;
varying vec4 ink; varying float triangle;
void main() {
  vec3 p = turn * mix(from, to, share);
  float own = mark * 255.0;
  bool dim = own < 0.5;
  bool hidden = only > 0.5 && (only < 1.5) != dim;
  gl_Position = hidden ? vec4(2.0, 2.0, 0.0, 1.0) : vec4(p.xy * place.xy + place.zw, flat_ > 0.5 ? 0.0 : -p.z * 0.3, 1.0);
  float wide = size * (own > 1.5 ? 1.6 : dim ? 0.8 : 1.0) * (flat_ > 0.5 ? 1.0 : 1.0 + 0.35 * p.z);
  gl_PointSize = max(1.0, wide * (colour.a > 0.5 ? 1.2 : 1.0));
  ink = vec4(colour.rgb, dim ? opacity : 0.85);
  triangle = colour.a;
}`;
const FRAGMENT = `
precision mediump float;
uniform float softness; uniform mediump float flat_;
varying vec4 ink; varying float triangle;
void main() {
  vec2 p = gl_PointCoord * 2.0 - 1.0;
  float outside = triangle > 0.5 ? max(p.y - 0.8, abs(p.x) * 0.87 - (p.y + 0.95) * 0.5) : length(p) - 0.9;
  float cover = 1.0 - smoothstep(-softness, softness * 0.2, outside);
  if (cover < (flat_ > 0.5 ? 0.01 : 0.5)) discard;
  gl_FragColor = vec4(ink.rgb, 1.0) * ink.a * cover;
}`;
const UNIFORMS = ["turn", "place", "share", "size", "only", "opacity", "flat_", "softness"];
const ATTRIBUTES = { from: 3, to: 3, colour: 4, mark: 1 };

/**
 * A canvas that draws scenes: { wide, high, dim, part, clouds: [{ from, to, share, colours, marks,
 * order, turn, place: {x, y, scale}, size, flat }] }. `part` [a, b] are the shares of each cloud's
 * points between which they are drawn; beyond a = 0 they come over what was drawn before. Arrays are
 * known by themselves: one that was drawn before is not sent to the graphics card again, marks only
 * when their version changes.
 */
export function renderer(canvas) {
  const gl = canvas.getContext("webgl", { antialias: false, preserveDrawingBuffer: true });
  if (!gl) return flatRenderer(canvas);
  gl.getExtension("OES_element_index_uint");
  const program = linked(gl);
  gl.useProgram(program);
  const uniforms = Object.fromEntries(UNIFORMS.map((name) => [name, gl.getUniformLocation(program, name)]));
  const attributes = Object.fromEntries(Object.keys(ATTRIBUTES).map((name) => [name, gl.getAttribLocation(program, name)]));
  for (const at of Object.values(attributes)) gl.enableVertexAttribArray(at);
  const buffers = new Map();
  let frame = 0;

  function buffer(array, target, version = 0) {
    let known = buffers.get(array);
    if (!known) buffers.set(array, (known = { made: gl.createBuffer(), version: -1, used: 0 }));
    gl.bindBuffer(target, known.made);
    if (known.version !== version) gl.bufferData(target, array, gl.STATIC_DRAW);
    known.version = version;
    known.used = frame;
  }

  function attribute(name, array, type, version) {
    buffer(array, gl.ARRAY_BUFFER, version);
    gl.vertexAttribPointer(attributes[name], ATTRIBUTES[name], type, type === gl.UNSIGNED_BYTE, 0, 0);
  }

  function draw(scene) {
    frame += 1;
    const ratio = window.devicePixelRatio || 1;
    resized(canvas, scene.wide, scene.high, ratio);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    if (!scene.part[0]) gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.uniform1f(uniforms.opacity, scene.dim);
    for (const cloud of scene.clouds) drawCloud(cloud, scene, ratio);
    forget();
  }

  function drawCloud(cloud, { wide, high, part }, ratio) {
    const [first, last] = partOf(cloud, part);
    attribute("from", cloud.from, gl.FLOAT);
    attribute("to", cloud.to, gl.FLOAT);
    attribute("colour", cloud.colours, gl.UNSIGNED_BYTE);
    attribute("mark", cloud.marks.array, gl.UNSIGNED_BYTE, cloud.marks.version);
    buffer(cloud.order, gl.ELEMENT_ARRAY_BUFFER);
    cloud.flat ? gl.disable(gl.DEPTH_TEST) : gl.enable(gl.DEPTH_TEST);
    const { x, y, scale } = cloud.place;
    gl.uniform4f(uniforms.place, (2 * scale) / wide, (2 * scale) / high, (2 * x) / wide - 1, 1 - (2 * y) / high);
    gl.uniformMatrix3fv(uniforms.turn, false, columns(cloud.turn));
    gl.uniform1f(uniforms.share, cloud.share);
    gl.uniform1f(uniforms.size, cloud.size * ratio);
    gl.uniform1f(uniforms.softness, Math.min(1, 3 / (cloud.size * ratio)));
    gl.uniform1f(uniforms.flat_, cloud.flat ? 1 : 0);
    const type = cloud.order instanceof Uint32Array ? gl.UNSIGNED_INT : gl.UNSIGNED_SHORT;
    // Where some are dim, they are drawn first, below the others.
    for (const only of cloud.marks.some ? [1, 2] : [0]) {
      gl.uniform1f(uniforms.only, only);
      gl.drawElements(gl.POINTS, last - first, type, first * cloud.order.BYTES_PER_ELEMENT);
    }
  }

  /** Arrays that were not drawn for a while leave the graphics card. */
  function forget() {
    if (frame % 300) return;
    for (const [array, { made, used }] of buffers) {
      if (frame - used < 300) continue;
      gl.deleteBuffer(made);
      buffers.delete(array);
    }
  }

  /** Browsers keep few contexts: whoever leaves the page gives its own back. */
  function free() {
    buffers.clear();
    gl.getExtension("WEBGL_lose_context")?.loseContext();
  }

  return { draw, free, lost: () => gl.isContextLost(), kind: "webgl" };
}

export const partOf = ({ order }, [a, b]) => [Math.floor(a * order.length), Math.ceil(b * order.length)];

export function resized(canvas, wide, high, ratio) {
  const [w, h] = [Math.max(1, Math.round(wide * ratio)), Math.max(1, Math.round(high * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
}

const columns = ([a, b, c, d, e, f, g, h, i]) => [a, d, g, b, e, h, c, f, i];

function linked(gl) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(program));
  return program;
}
