// The Mersenne Twister with PyTorch's way to draw a permutation: equal seeds give equal draws, so
// that random(keys, seed) is the same pattern on the page and in Python.

const N = 624;

export class Twister {
  constructor(seed) {
    this.state = new Uint32Array(N);
    this.state[0] = ((seed % 2 ** 32) + 2 ** 32) % 2 ** 32;
    for (let i = 1; i < N; i += 1) {
      const last = this.state[i - 1];
      this.state[i] = Math.imul(1812433253, last ^ (last >>> 30)) + i;
    }
    this.at = N;
  }

  refill() {
    const { state } = this;
    for (let k = 0; k < N; k += 1) {
      const y = (state[k] & 0x80000000) | (state[(k + 1) % N] & 0x7fffffff);
      state[k] = state[(k + 397) % N] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.at = 0;
  }

  /** A whole number from 0 to 2³² − 1. */
  next() {
    if (this.at === N) this.refill();
    let y = this.state[this.at];
    this.at += 1;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  /** A number from 0 to 1 in double precision: 53 bits of two draws. */
  fraction() {
    const high = this.next() & 0x1fffff;
    return (high * 2 ** 32 + this.next()) / 2 ** 53;
  }

  permutation(count) {
    const places = Array.from({ length: count }, (_, i) => i);
    for (let i = 0; i < count - 1; i += 1) {
      const other = i + (this.next() % (count - i));
      [places[i], places[other]] = [places[other], places[i]];
    }
    return places;
  }
}

/** Of each of `count` positions, the `keys` different ones that it sees. */
export function drawn(keys, seed, count) {
  const chance = new Twister(seed);
  return Array.from({ length: count }, () => chance.permutation(count).slice(0, keys));
}

/** The same from those that each may draw: every pair gets a number, the largest allowed are drawn. */
export function drawnAmong(keys, seed, count, allowed) {
  const chance = new Twister(seed);
  return Array.from({ length: count }, (_, i) => {
    const chances = Array.from({ length: count }, () => chance.fraction());
    const open = chances.map((_, j) => j).filter((j) => allowed(i, j));
    return open.sort((a, b) => chances[b] - chances[a]).slice(0, keys);
  });
}
