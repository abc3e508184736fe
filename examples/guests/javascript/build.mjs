// Makes a component of app.js: `node build.mjs app.wasm`.

import { readFile, writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const { component } = await componentize(await readFile("app.js", "utf8"), {
  witPath: "../../../wit",
  worldName: "plugin",
  // What would import WASI, of which a plugin needs nothing.
  disableFeatures: ["random", "stdio", "clocks", "http", "fetch-event"],
});
await writeFile(process.argv[2], component);
