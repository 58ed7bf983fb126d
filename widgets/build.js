// Bundles attnlab_widgets/<name>/<name>.js into attnlab_widgets/static/<name>.js: the same bytes
// everywhere. `--check` builds in memory and fails where a committed bundle differs.
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import path from "node:path";
import { build, transform } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const room = path.join(here, "attnlab_widgets");
const names = readdirSync(room)
  .filter((name) => existsSync(path.join(room, name, `${name}.js`)))
  .sort();

/** Style sheets come in as texts, without their white space. */
const styles = {
  name: "styles",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path: file }) => {
      const { code } = await transform(readFileSync(file, "utf8"), { loader: "css", minify: true });
      return { contents: code, loader: "text" };
    });
  },
};

async function bundled(name) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [`attnlab_widgets/${name}/${name}.js`],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2020",
    charset: "ascii",
    legalComments: "none",
    plugins: [styles],
    write: false,
  });
  return result.outputFiles[0].text;
}

let stale = 0;
for (const name of names) {
  const text = await bundled(name);
  const file = path.join(room, "static", `${name}.js`);
  if (!process.argv.includes("--check")) {
    writeFileSync(file, text);
    console.log(`${name}.js: ${(text.length / 1024).toFixed(0)} KiB`);
    continue;
  }
  let committed = "";
  try {
    committed = readFileSync(file, "utf8");
  } catch {
    // A missing bundle is a stale one.
  }
  if (committed !== text) {
    stale += 1;
    console.error(`attnlab_widgets/static/${name}.js is not what ${name}/${name}.js builds; run: npm run build`);
  }
}
process.exit(stale ? 1 : 0);
