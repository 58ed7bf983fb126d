// Names of the kinds, in the order of their colours and shapes; sentences come from Python.
export const LOOKS = ["correct", "local", "restored", "propagated", "given"];

/** All steps, and what happened at one node. */
export const sentence = ({ said, nodes }, node) => `${said} ${nodes[node].said}`;
