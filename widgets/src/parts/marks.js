// Outlines of points: colours go by five and shapes by four, so that kinds differ in both.

/** The outline of the point of a kind, around 0. */
export function outline(kind, r) {
  const side = 0.9 * r;
  if (kind % 4 === 1) return `M${-side} ${-side}H${side}V${side}H${-side}Z`;
  if (kind % 4 === 2) return `M0 ${-1.25 * r}L${1.25 * r} 0L0 ${1.25 * r}L${-1.25 * r} 0Z`;
  if (kind % 4 === 3) return `M0 ${-1.2 * r}L${1.1 * r} ${0.8 * r}L${-1.1 * r} ${0.8 * r}Z`;
  return `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`;
}
