import { fileURLToPath } from "node:url";
import { pluginContract } from "../contract/plugin.ts";

const folder = fileURLToPath(new URL("../..", import.meta.url));

pluginContract("audit-log", {
  use: "audit-log",
  folder,
  options: { arguments: true, redact: ["**.token"] },
  wrong: [{ "no-such-option": 1 }, { keep: -1 }, { redact: "x" }, { file: "" }, { maxSize: {} }],
});
pluginContract("cache", {
  use: "cache",
  folder,
  options: { tools: ["plain"] },
  wrong: [{ "no-such-option": 1 }, { ttl: -1 }, { tools: "x" }, { readOnly: 1 }],
});
pluginContract("result-limit", {
  use: "result-limit",
  folder,
  wrong: [{ "no-such-option": 1 }, { max: 1 }, { ttl: "x" }, { keep: null }],
});
pluginContract("schema-repair", {
  use: "schema-repair",
  folder,
  wrong: [{ "no-such-option": 1 }, { unrepairable: "fix" }, { unrepairable: true }],
});
