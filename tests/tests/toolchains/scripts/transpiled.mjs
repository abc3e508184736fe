// Transpiles a plugin and runs it with a host of JavaScript objects.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { transpile } from "@bytecodealliance/jco";

const [plugin, folder] = process.argv.slice(2);
const { files } = await transpile(await readFile(plugin), { name: "plugin", instantiation: "sync" });
await mkdir(folder, { recursive: true });
for (const [name, bytes] of Object.entries(files)) {
  await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
  await writeFile(path.join(folder, name), bytes);
}
const { instantiate } = await import(path.resolve(folder, "plugin.js"));

const text = (bytes) => new TextDecoder().decode(bytes);
class BpfMap {
  static entries = new Map();
  static open(name) {
    return new BpfMap();
  }
  lookup(key) {
    return BpfMap.entries.get(String(key));
  }
  update(key, value) {
    BpfMap.entries.set(String(key), value);
  }
  share() {}
}
const offered = {
  console: {
    print(format, values) {
      let next = 0;
      console.log(text(format).replaceAll("%u", () => values[next++].val));
    },
    warn(message) { console.error(message); },
    abort(message) { throw new Error(message); },
  },
  maps: { BpfMap },
  args: { parse: () => ({ tag: "values", val: [] }) },
};
// What nobody offers fails when it is called.
const missing = (name) => function () { throw new Error(`${name} is called`); };
const all = (known, other) => new Proxy(known, { get: (of, name) => of[name] ?? other(String(name)) });
const interface_ = (name) => /\/([a-z]+)(@|$)/.exec(name)?.[1];
const imports = all({}, (name) => all(offered[interface_(name)] ?? {}, missing));
const compile = (file) => new WebAssembly.Module(new Uint8Array(files[file]));
const { run } = instantiate(compile, imports);
try {
  run();
  console.log("code", 0);
} catch (error) {
  // An error of the plugin comes as an exception with its value.
  if (error.payload === undefined) throw error;
  console.log("code", error.payload);
}
