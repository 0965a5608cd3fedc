import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { cpuUsage } from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { readAgentText } from "../src/agent-files/agent-library.ts";
import { formatShownArguments } from "../src/approval/shown-arguments.ts";
import { parseSchemes } from "../src/auth/challenge.ts";
import { compileGlobs } from "../src/catalog/filter.ts";
import { formatCodeFrame } from "../src/cli/code-frame.ts";
import { parseTemplate } from "../src/manifest/interpolate.ts";
import { parseText } from "../src/manifest/syntax/parse.ts";
import { findSuspectedSecrets, maskArguments } from "../src/manifest/plaintext-secrets.ts";
import { addPositions } from "../src/manifest/syntax/positions.ts";
import { findNearest } from "../src/manifest/problems.ts";
import { explainSyntaxError } from "../src/manifest/syntax/toml-errors.ts";
import { truncate, wrapText } from "../src/terminal/columns.ts";
import { alignTable, PLAIN_STYLE } from "../src/terminal/terminal.ts";
import { Redactor } from "../src/transport/redact.ts";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
/**
 * The lengths of a short text and of one that is eight times as long. In linear time the long one takes eight times as
 * long as the short one, in quadratic time 64 times.
 */
const LENGTHS = { short: 16 * 1024, long: 128 * 1024 };
/** The maximum duration for the short text, in ms. */
const SHORT_LIMIT = 2000;
/** Up to this duration, in ms, the long text is not compared. In quadratic time it would take longer. */
const COMPARED_FROM = 400;
/** The maximum growth. */
const MAX_GROWTH = 24;
/** How often a text that took too long is read again: another process may have delayed it. */
const ATTEMPTS = 3;

/** What a text of others is made of: each is repeated. */
const UNITS = [
  ...Array.from("aA0-_. ,:/\\\"'([{<=$#*\t\n\u001bé"),
  ...'a.|a=b;|a=\\"|${a|{}|a: |- a\n|[[a]]\n|://a:b@|sk-.|/*|"""|&a |*a '.split("|"),
];

type Read = (text: string) => unknown;

/** What reads texts of others, apart from the functions of one text that are exported. */
const READERS: Readonly<Record<string, Read>> = {
  "a manifest in TOML": (text) => readFile(text, "toml"),
  "a manifest in JSON": (text) => readFile(text, "json"),
  "a long key in TOML": (text) => readFile(`${text} = 1`, "toml"),
  "a value in TOML": (text) => readFile(`a = ${text}`, "toml"),
  "a text in TOML": (text) => readFile(`a = "${text}`, "toml"),
  "a broken statement of TOML": (text) =>
    explainSyntaxError(text, { line: 1, column: text.length + 1 }),
  "a file of agents in TOML": (text) => readAgents(text, "a.toml"),
  "a file of agents in JSON": (text) => readAgents(text, "a.json"),
  "a file of agents in YAML": (text) => readAgents(text, "a.yaml"),
  "a variable of a server": (text) => findSuspectedSecrets("VALUE", text),
  "a secret variable of a server": (text) => findSuspectedSecrets("TOKEN", text),
  "the name of a variable": (text) => findSuspectedSecrets(text, "value-of-it"),
  "arguments of a server": (text) => maskArguments([text, text]),
  "a template": (text) => parseTemplate(text, "toolmux"),
  "a challenge": (text) => parseSchemes(text.slice(0, 16 * 1024)),
  "arguments of a call": (text) =>
    formatShownArguments([JSON.stringify({ a: text })], (one) => one),
  "a line with a problem": (text) =>
    formatCodeFrame(
      { file: "a.toml", path: ["a"], at: "value", message: "", position: { line: 1, column: 1 } },
      text,
      PLAIN_STYLE,
    ),
  "a line of a broken file": (text) =>
    formatCodeFrame(
      { file: "a.toml", path: [], at: "value", message: "", position: { line: 1, column: 1 } },
      text,
      PLAIN_STYLE,
    ),
  "a paragraph": (text) => wrapText(text, 80),
  "a paragraph without a width": (text) => wrapText(text, Number.POSITIVE_INFINITY),
  "a cell": (text) => [truncate(text, 20), alignTable(["A"], [[text]], PLAIN_STYLE)],
  "a name": (text) => findNearest(text, ["command", "package", "url"]),
  "a name and many globs": (text) => compileGlobs(["*a", "*a*a*b*a?c*"])(text),
  "an answer with secrets": (text) => new Redactor(["aaaaaab", "sk-secret", "a a a b"]).apply(text),
};

async function readFile(text: string, format: "toml" | "json"): Promise<void> {
  const parsed = await parseText(text, format);
  if (!parsed.ok) return;
  const problems = [["a"], ["a", "a", "a"], ["b", 0]].map((path) => {
    return { file: "f", path, at: "key", message: "m" } as const;
  });
  await addPositions(problems, parsed.preparePositions);
}

function readAgents(text: string, name: string): Promise<unknown> {
  return readAgentText(new TextEncoder().encode(text), name, "/", () => ({ problem: "none" }));
}

/** What a YAML document is made of; its parser is the slowest. */
const YAML_UNITS = ["a", " ", "-", "[", "{", ":", "\n", '"', "- a\n", "a: ", "&a ", "*a "];

/**
 * Exported functions of one text that do more than to read it, that a table above has already, or that get a text of
 * limited length: `compilePattern`.
 */
const OTHERS =
  /^(?:print|write|open|read(?:File|Trust|Stored)|list|load|remove|delete|ensure|run|find(?:Port|Program)|sync|create|compilePattern|parse(?:Yaml|Toml|Json|StrictJson|Schemes)$)/;

/** All exported functions of one text. */
async function exportedReaders(): Promise<readonly (readonly [string, Read])[]> {
  const found: (readonly [string, Read])[] = [];
  for (const folder of ["src", "plugins"]) {
    for (const name of readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })) {
      if (!name.endsWith(".ts") || name.endsWith(".d.ts")) continue;
      const path = join(ROOT, folder, name);
      const own = [
        ...readFileSync(path, "utf8").matchAll(/^export function (\w+)\(\w+: string\)/gm),
      ].flatMap(([, one]) => (one === undefined || OTHERS.test(one) ? [] : [one]));
      if (own.length === 0) continue;
      const module = (await import(pathToFileURL(path).href)) as Readonly<Record<string, Read>>;
      for (const one of own) {
        const read = module[one];
        if (typeof read === "function") found.push([`${folder}/${name} ${one}`, read]);
      }
    }
  }
  return found;
}

/** The processor time of this process while it reads a text, in ms. Other processes do not change it. */
async function durationOf(read: Read, text: string): Promise<number> {
  const started = cpuUsage();
  try {
    await read(text);
  } catch {
    // A refusal is an answer, too.
  }
  const { user, system } = cpuUsage(started);
  return (user + system) / 1000;
}

/** The texts for which a function takes too long. */
async function slowTexts(read: Read, units: readonly string[]): Promise<readonly string[]> {
  const slow: string[] = [];
  for (const unit of units) {
    const [short, long] = [LENGTHS.short, LENGTHS.long].map((size) =>
      unit.repeat(size / unit.length),
    ) as [string, string];
    let shortest = Number.POSITIVE_INFINITY;
    let duration = Number.POSITIVE_INFINITY;
    const isSlow = (): boolean =>
      shortest > SHORT_LIMIT || (duration > COMPARED_FROM && duration > MAX_GROWTH * shortest);
    for (let attempt = 0; attempt < ATTEMPTS && isSlow(); attempt++) {
      shortest = Math.min(shortest, await durationOf(read, short));
      if (shortest <= SHORT_LIMIT) duration = Math.min(duration, await durationOf(read, long));
    }
    if (isSlow()) {
      const durations = [shortest, duration].map((ms) => Math.round(ms)).join(" and ");
      slow.push(`${JSON.stringify(unit)}, short and long: ${durations} ms`);
    }
  }
  return slow;
}

const TEST = { timeout: 300_000 };

describe("what reads texts of others takes a time that is proportional to their length:", async () => {
  for (const [what, read] of Object.entries(READERS)) {
    const units = what.includes("YAML") ? YAML_UNITS : UNITS;
    it(what, TEST, async () => assert.deepEqual(await slowTexts(read, units), []));
  }

  const exported = await exportedReaders();

  it("there are such functions in all parts of the program", () => {
    assert.ok(exported.length > 40, `${exported.length}`);
  });

  for (const [name, read] of exported) {
    it(name, TEST, async () => assert.deepEqual(await slowTexts(read, UNITS), []));
  }

  it(
    "a file of agents with 20,000 agents, models or servers, of which it names the limit",
    TEST,
    async () => {
      for (const [key, entry] of [
        ["agents", { model: "m", instruction: "i", oddKey: 1 }],
        ["models", { provider: "p", oddKey: 1 }],
        ["servers", { command: "c", oddKey: 1 }],
      ] as const) {
        const entries = Array.from({ length: 20_000 }, (_, at) => [`n${at}`, entry]);
        const started = performance.now();
        const text = JSON.stringify({ [key]: Object.fromEntries(entries) }).slice(
          0,
          4 * 1024 * 1024,
        );
        const result = (await readAgents(text, "a.json")) as {
          ok: boolean;
          problems: { message: string }[];
        };
        assert.ok(performance.now() - started < 15_000, key);
        assert.match(result.problems[0]?.message ?? "", /^a file has at most \d+/);
      }
    },
  );

  it("a file of agents with 100,000 unknown tables", TEST, async () => {
    const started = performance.now();
    const entries = Array.from({ length: 100_000 }, (_, at) => [`n${at}`, {}]);
    const result = (await readAgents(JSON.stringify(Object.fromEntries(entries)), "a.json")) as {
      ok: boolean;
    };
    assert.equal(result.ok, false);
    assert.ok(performance.now() - started < 15_000);
  });

  it("problems of many keys, each with its position", TEST, async () => {
    const keys = Array.from({ length: 20_000 }, (_, at) => `k${at}`);
    const json = await parseText(`{${keys.map((key) => `\n"${key}": [1]`).join(",")}}`, "json");
    const toml = await parseText(
      keys
        .slice(0, 8000)
        .map((key) => `${key} = [1]`)
        .join("\n"),
      "toml",
    );
    for (const parsed of [json, toml]) {
      if (!parsed.ok) assert.fail(parsed.message);
      const started = performance.now();
      const problems = keys.slice(0, 8000).map((key) => {
        return { file: "f", path: [key, 0], at: "value", message: "m" } as const;
      });
      const placed = await addPositions(problems, parsed.preparePositions);
      assert.equal(new Set(placed.map(({ position }) => position?.line)).size, 8000);
      assert.ok(performance.now() - started < 15_000);
    }
  });
});
