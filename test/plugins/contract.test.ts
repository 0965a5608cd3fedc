import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { pluginContract, type PluginUnderTest } from "../contract/plugin.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "plugins-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const BUILT_IN: Readonly<Record<string, Omit<PluginUnderTest, "use" | "folder">>> = {
  "audit-log": {
    options: { arguments: true, redact: ["**.token"] },
    wrong: [{ keep: -1 }, { redact: "x" }, { file: "" }, { maxSize: {} }],
  },
  cache: { options: { tools: ["plain"] }, wrong: [{ ttl: -1 }, { tools: "x" }, { readOnly: 1 }] },
  "result-limit": { wrong: [{ max: 1 }, { ttl: "x" }, { keep: null }] },
  "schema-repair": { wrong: [{ unrepairable: "fix" }, { unrepairable: true }] },
};
for (const [use, { wrong = [], ...subject }] of Object.entries(BUILT_IN)) {
  const all = [{ "no-such-option": 1 }, ...wrong];
  pluginContract(use, { use, folder: ROOT, ...subject, wrong: all });
}

writeFileSync(
  join(folder, "plain.mjs"),
  `export default {
    name: "plain",
    setup(options, host) {
      return {
        list: (items) => items.map((item) => ({ ...item, title: item.name })),
        call: (next, tool) => (tool.name === "reader" ? next : (call) => next(call)),
        event: (event) => host.log("debug", event.kind),
      };
    },
  };`,
);
pluginContract("of a file of JavaScript that imports nothing", { use: "./plain.mjs", folder });

writeFileSync(
  join(folder, "factory.ts"),
  `interface Options { readonly extra: string }
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
);
pluginContract("of a file of TypeScript that is given what it needs", {
  use: "./factory.ts",
  folder,
  options: { extra: "more" },
  wrong: [{ "no-such-option": 1 }, { extra: 1 }],
});

const packed = join(folder, "node_modules", "@some", "plugin");
mkdirSync(join(packed, "lib"), { recursive: true });
writeFileSync(
  join(packed, "package.json"),
  '{"name":"@some/plugin","version":"1.0.0","type":"module","exports":"./lib/index.js"}',
);
writeFileSync(join(packed, "lib", "name.js"), 'export const name = "packed";');
writeFileSync(
  join(packed, "lib", "index.js"),
  `import { name } from "./name.js";
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
);
pluginContract("of a package", {
  use: "@some/plugin",
  folder,
  secrets: { packed: { token: "hunter2" } },
});

pluginContract("that does nothing wrong, though it could", {
  use: "./faulty.ts",
  folder: join(ROOT, "test/fixtures/plugin"),
  options: { fault: "none" },
  wrong: [{ "no-such-option": 1 }, {}, { fault: "no such fault" }],
});
