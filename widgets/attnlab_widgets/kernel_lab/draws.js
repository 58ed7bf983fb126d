// The random rows ω that PyTorch draws for a seed, drawn in the page: its generator (MT19937) and its
// normal numbers (Box and Muller), then rows that are orthogonal within blocks, as
// attnlab/mechanisms/kernelized/performer/random_features.py makes them.

const [SIZE, AHEAD] = [624, 397]; // words of the state, and how far ahead it looks

/** A source of words of 32 bits: the Mersenne Twister. */
function words(seed) {
  const state = new Uint32Array(SIZE);
  state[0] = seed;
  for (let i = 1; i < SIZE; i += 1) state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  let at = SIZE;

  function twist() {
    for (let i = 0; i < SIZE; i += 1) {
      const both = (state[i] & 0x80000000) | (state[(i + 1) % SIZE] & 0x7fffffff);
      state[i] = state[(i + AHEAD) % SIZE] ^ (both >>> 1) ^ (both & 1 ? 0x9908b0df : 0);
    }
    at = 0;
  }

  return () => {
    if (at === SIZE) twist();
    let word = state[at];
    at += 1;
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  };
}

/** `normal(count)` gives the next numbers of `torch.randn(…, dtype=torch.float64)` on a CPU. */
export function generator(seed) {
  const word = words(seed);
  let kept = null; // the second number of a pair, where numbers are drawn one by one

  function uniform() {
    const high = word() & 0x1fffff; // 53 bits of two words, the first of them above
    return (high * 2 ** 32 + word()) / 2 ** 53;
  }

  /** Sixteen uniform numbers become normal ones, in pairs that are eight apart. */
  function sixteen(out, from) {
    for (let j = from; j < from + 8; j += 1) {
      const radius = Math.sqrt(-2 * Math.log(1 - out[j]));
      const angle = 2 * Math.PI * out[j + 8];
      out[j] = radius * Math.cos(angle);
      out[j + 8] = radius * Math.sin(angle);
    }
  }

  function single() {
    if (kept !== null) {
      const found = kept;
      kept = null;
      return found;
    }
    const turn = 2 * Math.PI * uniform();
    const radius = Math.sqrt(-2 * Math.log1p(-uniform()));
    kept = radius * Math.sin(turn);
    return radius * Math.cos(turn);
  }

  return function normal(count) {
    const out = new Float64Array(count);
    if (count < 16) return out.map(single);
    const fill = (from, to) => {
      for (let i = from; i < to; i += 1) out[i] = uniform();
    };
    fill(0, count);
    for (let i = 0; i + 16 <= count; i += 16) sixteen(out, i);
    if (count % 16) {
      fill(count - 16, count); // the last sixteen are drawn again
      sixteen(out, count - 16);
    }
    return out;
  };
}

/** Independent rows ω ~ N(0, I): r · d numbers. */
export const gaussianRows = (r, d, normal) => normal(r * d);

/** Rows orthogonal within blocks of d, each as long as a Gaussian vector. */
export function orthogonalRows(r, d, normal) {
  const blocks = normal(Math.ceil(r / d) * d * d);
  const rows = new Float64Array(Math.ceil(r / d) * d * d);
  for (let at = 0; at < rows.length; at += d * d) orthogonal(blocks.subarray(at, at + d * d), rows.subarray(at, at + d * d), d);
  const lengths = normal(r * d);
  for (let i = 0; i < r; i += 1) {
    let square = 0;
    for (let c = 0; c < d; c += 1) square += lengths[i * d + c] ** 2;
    const long = Math.sqrt(square);
    for (let c = 0; c < d; c += 1) rows[i * d + c] *= long;
  }
  return rows.subarray(0, r * d);
}

/** The columns of a block (d, d) made orthonormal, one after another, as rows; twice, for rounding. */
function orthogonal(block, out, d) {
  for (let j = 0; j < d; j += 1) {
    const row = out.subarray(j * d, (j + 1) * d);
    for (let c = 0; c < d; c += 1) row[c] = block[c * d + j];
    for (let again = 0; again < 2; again += 1) {
      for (let i = 0; i < j; i += 1) {
        let product = 0;
        for (let c = 0; c < d; c += 1) product += out[i * d + c] * row[c];
        for (let c = 0; c < d; c += 1) row[c] -= product * out[i * d + c];
      }
    }
    let square = 0;
    for (let c = 0; c < d; c += 1) square += row[c] ** 2;
    const long = Math.sqrt(square);
    for (let c = 0; c < d; c += 1) row[c] /= long;
  }
}

/** The rows of a choice {features, orthogonal, seed} for heads of width d. */
export function rowsOf({ features, orthogonal: right, seed }, d) {
  return (right ? orthogonalRows : gaussianRows)(features, d, generator(seed));
}
