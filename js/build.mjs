// Bundles the card and its loader into ../agent_widgets/static, each as one ES module with nothing to fetch.

import { readFile, writeFile } from "node:fs/promises";
import { build, transform } from "esbuild";

const STATIC = "../agent_widgets/static";

/** Style sheets are imported as minified text: one file to carry. */
const cssText = {
  name: "css-text",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
      return { contents: code.trim(), loader: "text" };
    });
  },
};

await build({
  entryPoints: { card: "src/widget.ts", loader: "src/loader.ts" },
  outdir: STATIC,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none", // whole, in LICENSES.txt,
  plugins: [cssText],
  logLevel: "warning",
});

/** The licences of what is inside ask to go with it. */
const { dependencies } = JSON.parse(await readFile("package.json", "utf8"));
const licences = Object.entries(dependencies).map(async ([name, version]) => {
  const text = await readFile(`node_modules/${name}/LICENSE`, "utf8");
  return `${name} ${version}\n\n${text.trim()}\n`;
});
await writeFile(`${STATIC}/LICENSES.txt`, (await Promise.all(licences)).join(`\n${"-".repeat(80)}\n\n`));
