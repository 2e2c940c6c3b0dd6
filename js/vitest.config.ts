import { readFile } from "node:fs/promises";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [
    {
      name: "css-text", // as build.mjs does
      enforce: "pre",
      async load(id) {
        return id.endsWith(".css") ? `export default ${JSON.stringify(await readFile(id, "utf8"))}` : undefined;
      },
    },
  ],
  test: { environment: "jsdom", include: ["test/**/*.test.ts"], setupFiles: ["test/setup.ts"], testTimeout: 30_000 },
});
