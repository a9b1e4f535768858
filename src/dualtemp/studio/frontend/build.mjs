// Bundle src/main.ts into one file: no package is part of it, and the same sources give the same bytes.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
await build({
  absWorkingDir: here,
  entryPoints: ["src/main.ts"],
  outfile: process.argv[2] ?? "../static/studio.js",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: "// dualtemp studio, MIT. Built from studio/frontend by `npm ci && npm run build`." },
});
