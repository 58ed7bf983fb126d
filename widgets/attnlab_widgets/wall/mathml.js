// An equation that attnlab/figures/mathml.py has read, as MathML.
const SPACE = "http://www.w3.org/1998/Math/MathML";

export function equation([name, ...rest]) {
  const plain = typeof rest[0] === "string" || Array.isArray(rest[0]) || !rest.length;
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(plain ? {} : rest[0])) node.setAttribute(key, value);
  const children = plain ? rest : rest.slice(1);
  node.append(...children.map((child) => (typeof child === "string" ? child : equation(child))));
  return node;
}
