// A matrix as an image: blue below 0, orange above, with its numbers, and names of rows and columns.
import { css } from "#lib/colours.js";
import { two } from "#lib/plane.js";
import { drawn } from "#parts/svg.js";
import { number, short } from "./words.js";

const HEAD = 18;

/** `side` pixels a cell; `left` those for the names of the rows. */
export function grid({ rows, names, columns, side, left, largest, dark, label, testid }) {
  const [wide, high] = [left + side * columns.length + 1, HEAD + side * rows.length + 1];
  const node = drawn("svg", { class: "sv-grid", width: wide, height: high, role: "img", "aria-label": `${label}: ${told(rows, names, columns)}`, "data-testid": testid });
  const letters = Math.max(1, Math.floor(side / 6.4));
  columns.forEach((name, j) => node.append(drawn("text", { class: "sv-name", x: left + side * (j + 0.5), y: HEAD - 6, "text-anchor": "middle", text: short(name, letters) })));
  rows.forEach((row, i) => {
    const y = HEAD + side * i;
    node.append(drawn("text", { class: "sv-name", x: left - 5, y: y + side / 2 + 4, "text-anchor": "end", text: short(names[i], Math.floor(left / 7)) }));
    row.forEach((value, j) => {
      const fill = css(value, largest, true, dark);
      node.append(drawn("rect", { x: left + side * j, y, width: side, height: side, fill }));
      const text = fitting(value, Math.floor(side / 6.5));
      const ink = text === "0" ? "sv-name" : bright(fill) ? "sv-dark" : "sv-bright";
      node.append(drawn("text", { class: ink, x: left + side * (j + 0.5), y: y + side / 2 + 4, "text-anchor": "middle", text }));
    });
  });
  node.append(drawn("rect", { class: "sv-frame", x: left + 0.5, y: HEAD + 0.5, width: side * columns.length, height: side * rows.length }));
  return node;
}

/** A number in so many letters at most: fewer digits, or none at all. */
function fitting(value, letters) {
  const digits = [2, 1, 0].map((count) => two(Number(value.toFixed(9)), count));
  return Math.abs(value) < 0.005 ? "0" : digits.find((text) => text.length <= letters) ?? "";
}

const told = (rows, names, columns) => rows.map((row, i) => `${names[i]}: ${row.map((value, j) => `${columns[j]} ${number(value)}`).join(", ")}`).join("; ");

function bright(fill) {
  const [r, g, b] = fill.match(/\d+/g).map((x) => (Number(x) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18;
}
