import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { pluginContract } from "../contract/plugin.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const unknown = { "no-such-option": 1 };
const folder = mkdtempSync(join(tmpdir(), "plugins-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const SOURCES: Readonly<Record<string, string>> = {
  "plain.mjs": `export default {
    name: "plain",
    setup(options, host) {
      return {
        list: (items) => items.map((item) => ({ ...item, title: item.name })),
        call: (next, tool) => (tool.name === "reader" ? next : (call) => next(call)),
        event: (event) => host.log("debug", event.kind),
      };
    },
  };`,
  "factory.ts": `interface Options { readonly extra: string }
  export default async ({ v, definePlugin }: any) => definePlugin({
    name: "factory",
    options: v.strictObject({ extra: v.optional(v.string(), "extra") }),
    async setup({ extra }: Options) {
      return {
        list: (items: any) => [...items, { name: extra, inputSchema: { type: "object" } }],
        call: (next: any, tool: any) =>
          tool.name === extra ? async (call: any) => call.answer({ content: [] }) : next,
      };
    },
  });`,
  "node_modules/@some/plugin/package.json":
    '{"name":"@some/plugin","version":"1.0.0","type":"module","exports":"./lib/index.js"}',
  "node_modules/@some/plugin/lib/name.js": 'export const name = "packed";',
  "node_modules/@some/plugin/lib/index.js": `import { name } from "./name.js";
  const values = new Map([["token", "hunter2"]]);
  export default {
    name,
    setup: () => ({
      secrets: {
        packed(path) {
          if (values.has(path)) return values.get(path);
          throw new Error("There is no such value.");
        },
      },
    }),
  };`,
};
for (const [name, text] of Object.entries(SOURCES)) {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

pluginContract({
  "audit-log": {
    use: "audit-log",
    folder: ROOT,
    options: { arguments: true, redact: ["**.token"] },
    wrong: [unknown, { keep: -1 }, { redact: "x" }, { file: "" }, { maxSize: {} }],
  },
  cache: {
    use: "cache",
    folder: ROOT,
    options: { tools: ["plain"] },
    wrong: [unknown, { ttl: -1 }, { tools: "x" }, { readOnly: 1 }],
  },
  "result-limit": {
    use: "result-limit",
    folder: ROOT,
    wrong: [unknown, { max: 1 }, { ttl: "x" }, { keep: null }],
  },
  "schema-repair": {
    use: "schema-repair",
    folder: ROOT,
    wrong: [unknown, { unrepairable: "fix" }, { unrepairable: true }],
  },
  "of a file of JavaScript that imports nothing": { use: "./plain.mjs", folder },
  "of a file of TypeScript that is given what it needs": {
    use: "./factory.ts",
    folder,
    options: { extra: "more" },
    wrong: [unknown, { extra: 1 }],
  },
  "of a package": { use: "@some/plugin", folder, secrets: { packed: { token: "hunter2" } } },
  "that does nothing wrong, though it could": {
    use: "./faulty.ts",
    folder: join(ROOT, "test/fixtures/plugin"),
    options: { fault: "none" },
    wrong: [unknown, {}, { fault: "no such fault" }],
  },
});
