// What the panels share: the choice of silent heads, and the token that is pointed at.
import { sentence, silentIn, stateOf } from "./switches.js";

export class Study {
  constructor(model) {
    this.model = model;
    this.board = model.get("_board");
    const bytes = model.get("_maps");
    this.maps = new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
    const parts = model.get("_writers"); // files of earlier versions have none
    this.parts = parts?.byteLength ? new Float32Array(new Uint8Array(parts.buffer ?? parts, parts.byteOffset ?? 0, parts.byteLength).slice().buffer) : null;
    this.at = null; // the token that is pointed at
  }

  get silent() {
    return this.model.get("silent");
  }

  get state() {
    return stateOf(this.board.heads, this.silent);
  }

  get sentence() {
    return sentence(this.board, this.silent);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  choose(state) {
    this.set({ silent: silentIn(this.board.heads, state) });
  }

  flip(bit) {
    this.choose(this.state ^ (1 << bit));
  }
}
