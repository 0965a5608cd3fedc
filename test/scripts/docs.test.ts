import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { anchorOf, makePages } from "../../scripts/docs.ts";
import { GLOBAL_OPTIONS } from "../../src/cli/args.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { FINDING_CODES } from "../../src/host/doctor/findings.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../../src/manifest/manifest.ts";
import { PROCESS_KEYS, REMOTE_KEYS, serverSchema, toolsSchema } from "../../src/manifest/schema.ts";
import { isTable } from "../../src/manifest/table.ts";
import { makeSchema } from "../../scripts/schema.ts";

const ROOT = new URL("../../", import.meta.url);

/** Tables whose keys docs/manifest.md leaves to other pages. */
const ELSEWHERE = ["models", "agents", "agentFiles"];

describe("the pages", () => {
  it("have an example of a manifest with every key of servers, modes, clients and settings", async () => {
    const page = await readFile(new URL("docs/manifest.md", ROOT), "utf8");
    const example = /\n## An example with all keys[^]*?```toml\n([^]*?)```/.exec(page)?.[1] ?? "";
    const tables = Object.entries(makeSchema().properties ?? {}).filter(
      ([name]) => !ELSEWHERE.includes(name),
    );
    const keys = [
      ...[serverSchema, toolsSchema].flatMap(({ entries }) => Object.keys(entries)),
      ...[HUB_DEFAULTS, LIMIT_DEFAULTS].flatMap(Object.keys),
      ...PROCESS_KEYS,
      ...REMOTE_KEYS,
      ...tables.flatMap(([, schema]) => keysOf(schema)),
    ];
    const missing = keys.filter(
      (key) => !new RegExp(`(?:^|[ .{])${key}(?: =|\\.)`, "m").test(example),
    );
    assert.deepEqual(missing, []);
  });

  it("write the entry of a client in one way", async () => {
    const entry = /^"toolmux": \{ "command": "\/path\/to\/toolmux", "args": \["(?:serve|replay)"/;
    for (const [path, text] of await readPages())
      for (const [shown] of text.matchAll(/"toolmux": \{ "command".*?\}/g))
        assert.match(shown, entry, path);
  });

  it("name commands and options that there are", async () => {
    const unknown: string[] = [];
    for (const [path, text] of await readPages())
      for (const line of commandLinesOf(text)) {
        const words = line.replaceAll(/'[^']*'|"[^"]*"/g, "X").split(/\s+/);
        const first = words.find((word) => COMMANDS.some(({ name }) => name === word));
        const command = COMMANDS.find(({ name }) => name === first);
        if (command === undefined && /^[a-z]/.test(words[0] ?? ""))
          unknown.push(`${path}: ${line}`);
        const options = Object.keys({ ...GLOBAL_OPTIONS, ...(command ?? SERVE)?.options });
        for (const word of words) {
          const option = /^--([a-z][a-z-]*)/.exec(word)?.[1];
          if (option !== undefined && !options.includes(option))
            unknown.push(`${path}: ${line}: ${word}`);
        }
      }
    assert.deepEqual(unknown, []);
  });

  it("link to files and headings that there are", async () => {
    const broken: string[] = [];
    for (const [path, text] of await readPages())
      for (const [, target = "", anchor] of text.matchAll(/\]\(([^)#\s:]*)(?:#([^)\s]+))?\)/g)) {
        const url = target === "" ? new URL(path, ROOT) : new URL(target, new URL(path, ROOT));
        if (!existsSync(url)) broken.push(`${path}: ${target}`);
        else if (anchor !== undefined && url.pathname.endsWith(".md")) {
          const headings = (await readFile(url, "utf8")).matchAll(/^#+ (.+)$/gm);
          const anchors = [...headings].map(([, title = ""]) => anchorOf(title));
          if (!anchors.includes(anchor)) broken.push(`${path}: ${target}#${anchor}`);
        }
      }
    assert.deepEqual(broken, []);
  });
});

/** README.md and docs/*.md: their paths and texts. */
async function readPages(): Promise<readonly (readonly [path: string, text: string])[]> {
  const names = (await readdir(new URL("docs", ROOT))).filter((name) => name.endsWith(".md"));
  const paths = ["README.md", ...names.map((name) => `docs/${name}`)];
  return Promise.all(
    paths.map(async (path) => [path, await readFile(new URL(path, ROOT), "utf8")] as const),
  );
}

/** The command lines of toolmux in a page, without `toolmux`, comments and what comes after `--`. */
function commandLinesOf(text: string): readonly string[] {
  const blocks = [...text.matchAll(/```(?:sh|console)\n([^]*?)```/g)].flatMap(([, block = ""]) =>
    block
      .split("\n")
      .flatMap((line) => /^(?:\$ )?(?:.* \| )?toolmux ((?!\d).*)/.exec(line)?.[1] ?? []),
  );
  const prose = text.replaceAll(/```[^]*?```/g, "").matchAll(/`toolmux ([^`\n]+)`/g);
  return [...blocks, ...[...prose].map(([, line = ""]) => line)].map((line) =>
    line.replace(/ (?:#|-- |\|) ?.*/, ""),
  );
}

const SERVE = COMMANDS.find(({ name }) => name === "serve");

/** The keys of a table, or of each table of a list; none of a table whose keys are names of the reader's choice. */
function keysOf(schema: unknown): readonly string[] {
  if (!isTable(schema)) return [];
  const { properties, items, additionalProperties } = schema;
  const inner = [items, additionalProperties].flatMap(keysOf);
  return [...(isTable(properties) ? Object.keys(properties) : []), ...inner];
}

describe("the reference pages", () => {
  for (const [path, text] of makePages()) {
    it(`are those that the code makes: run \`npm run docs\` if not (${path})`, async () => {
      assert.equal(await readFile(new URL(`../../${path}`, import.meta.url), "utf8"), text);
    });
  }

  it("have every key, command and code", () => {
    const pages = makePages();
    const configuration = pages.get("docs/configuration.md") ?? "";
    const keys = [HUB_DEFAULTS, LIMIT_DEFAULTS, serverSchema.entries].flatMap(Object.keys);
    for (const key of keys) assert.ok(configuration.includes(`\n- \`${key}\` (`), key);
    for (const { name } of COMMANDS)
      assert.ok(pages.get("docs/cli.md")?.includes(`\n## toolmux ${name}\n`), name);
    for (const code of Object.keys(FINDING_CODES))
      assert.ok(pages.get("docs/doctor-codes.md")?.includes(`\n| ${code} | `), code);
  });
});
