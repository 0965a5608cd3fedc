/**
 * Checks a plugin against the contract for plugins, and prints whether each requirement is met; run by bun.
 *
 *    npm run contract -- ./my-plugin.ts --options '{"limit":10}' --wrong '{"limit":"many"}'
 *
 *    npm run contract -- --corpora [--from FOLDER]
 *
 * With `--corpora`, it checks the scan of definitions against public corpora instead (scripts/scan-corpora.ts).
 * The plugin is a file, a built-in plugin or a package. The exit code is 0 if it meets every requirement that applies
 * to it, 1 if not, and 2 if the arguments are invalid.
 */
import { dirname, resolve } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { isTable } from "../src/manifest/table.ts";
import {
  type PluginChange,
  type PluginRequirement,
  PLUGIN_REQUIREMENTS,
  type Options,
  type PluginUnderTest,
} from "../test/contract/plugin.ts";

const USAGE = `Usage: npm run contract -- PLUGIN [--options JSON] [--wrong JSON]… [--changes arguments|results]…
       npm run contract -- --corpora [--from FOLDER]

  --options  what it is set up with: an object, as in its manifest
  --wrong    invalid options that it must reject; by default an unknown option
  --changes  what it may change of calls on purpose; by default nothing`;

/** The folder in which the user ran the command: npm runs scripts in another folder. */
const HERE = process.env["INIT_CWD"] ?? process.cwd();

/** Reads the plugin under test from the command line. @throws {Error} if an argument is invalid */
function readSubject(args: readonly string[]): PluginUnderTest {
  const { positionals, values } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      options: { type: "string" },
      wrong: { type: "string", multiple: true },
      changes: { type: "string", multiple: true },
    },
  });
  const [name, ...rest] = positionals;
  if (name === undefined || rest.length > 0) throw new Error("expected one plugin");
  const file = /^(?:\.{0,2})\//.test(name) ? resolve(HERE, name) : undefined;
  const { options, wrong, changes } = values;
  return {
    use: file ?? name,
    folder: file === undefined ? HERE : dirname(file),
    ...(options !== undefined && { options: readOptions(options) }),
    ...(wrong !== undefined && { wrong: wrong.map(readOptions) }),
    ...(changes !== undefined && { changes: changes.map(readChange) }),
  };
}

function readOptions(text: string): Options {
  const value: unknown = JSON.parse(text);
  if (!isTable(value)) throw new Error(`expected a JSON object, not ${text}`);
  return value;
}

function readChange(text: string): PluginChange {
  if (text === "arguments" || text === "results") return text;
  throw new Error(`--changes is "arguments" or "results", not "${text}"`);
}

/** Checks all requirements. @returns whether every requirement that applies is met */
async function check(subject: PluginUnderTest): Promise<boolean> {
  const [first, ...others] = PLUGIN_REQUIREMENTS;
  // If the plugin cannot be loaded, all further requirements would fail for the same reason.
  if (first === undefined || (await tell(first, subject)) === "unmet") return false;
  const verdicts: Verdict[] = ["met"];
  for (const demand of others) verdicts.push(await tell(demand, subject));
  const count = (verdict: Verdict): number => verdicts.filter((it) => it === verdict).length;
  console.log(
    `\n${count("met")} met, ${count("unmet")} not met, ${count("notApplicable")} do not apply`,
  );
  return count("unmet") === 0;
}

type Verdict = "met" | "unmet" | "notApplicable";

async function tell(demand: PluginRequirement, subject: PluginUnderTest): Promise<Verdict> {
  const { sentence: says } = demand;
  try {
    const why = await demand.check(subject);
    console.log(why === undefined ? `  ✓  ${says}` : `  –  ${says} (${why})`);
    return why === undefined ? "met" : "notApplicable";
  } catch (error) {
    console.log(`  ✗  ${says}\n${indent(error instanceof Error ? error.message : String(error))}`);
    return "unmet";
  }
}

function indent(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .filter((line) => line.trim() !== "");
  return lines.map((line) => `       ${line.slice(0, 500)}`).join("\n");
}

// Print uncaught errors of the plugin, which would otherwise end this process. The last requirement detects them, in
// a process of its own.
process.on("uncaughtException", (error) =>
  console.error(`       uncaught error: ${error.message}`),
);
process.on("unhandledRejection", (error) =>
  console.error(`       uncaught error: ${String(error)}`),
);

if (process.argv[2] === "--corpora") {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: { from: { type: "string" } },
  });
  const { checkCorpora } = await import("./scan-corpora.ts");
  const from = values.from === undefined ? undefined : resolve(HERE, values.from);
  process.exit((await checkCorpora(from)) ? 0 : 1);
}

let subject: PluginUnderTest | undefined;
try {
  subject = readSubject(process.argv.slice(2));
} catch (error) {
  console.error(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
}
// Exit explicitly, because a plugin that leaves something running would keep this process running, too.
process.exit(subject === undefined ? 2 : (await check(subject)) ? 0 : 1);
