/**
 * Lets the official conformance suites loose on the executable's HTTP face, with a server of everything behind it; run by bun.
 *
 *   npm run conformance [-- --direct]
 *
 * With --direct there is no hub: what then fails is the server's fault. The exit code is 0 if nothing failed but what
 * test/conformance/expected.ts names, and if all of that did.
 */
import { mkdirSync, rmSync } from "node:fs";
import { delimiter, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { EXPECTED } from "../test/conformance/expected.ts";
import { type Subject, withHub, withServer } from "../test/conformance/subject.ts";
import { judge, readChecks, type Verdict } from "../test/conformance/verdict.ts";
import { runStep } from "./step.ts";

/** One run of a suite. */
interface Suite {
  readonly name: string;
  /** The folder of its package. */
  readonly folder: string;
  /** How it is told to play against a URL. */
  readonly args: (url: string) => readonly string[];
  /** How many checks it has to make through a hub, and without one. */
  readonly checks: { readonly hub: number; readonly direct: number };
}

const OUTPUT = "dist/conformance";

/** What a suite may take, in ms. */
const LIMIT = 25_000;

const SUITES: readonly Suite[] = [
  {
    name: "0.1.16",
    folder: "node_modules/@modelcontextprotocol/conformance",
    args: (url) => ["server", "--url", url],
    checks: { hub: 40, direct: 40 },
  },
  {
    name: "0.2.0-alpha.12-2025-11-25",
    folder: "node_modules/conformance-alpha",
    args: (url) => ["server", "--url", url, "--requirements", "2025-11-25"],
    // The hub ends no stream before its answer: one check finds nothing to look at.
    checks: { hub: 83, direct: 84 },
  },
];

/** What the suites have besides, and why it is not played. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  "client scenarios": "their servers are reached over HTTP, and the hub reaches servers over stdio",
  "requirements of 2026-07-28": "the hub speaks the dialects before that",
};

async function play(suite: Suite, url: string, isDirect: boolean): Promise<Verdict> {
  const folder = `${OUTPUT}/${suite.name}`;
  rmSync(folder, { recursive: true, force: true });
  const problem = await runStep({
    name: suite.name,
    command: "bun",
    args: [`${suite.folder}/dist/index.js`, ...suite.args(url), "-o", folder],
    limit: LIMIT,
    log: `${folder}.log`,
  });
  const expected = isDirect ? [] : EXPECTED.filter((one) => one.suite === suite.name);
  const known = isDirect ? suite.checks.direct : suite.checks.hub;
  const verdict = judge(readChecks(folder), known, expected);
  // Its exit code says what its checks say, if it came so far.
  if (problem === undefined || verdict.failed > 0) return verdict;
  return { ...verdict, problems: [...verdict.problems, `${problem}, see ${folder}.log`] };
}

function show({ name }: Suite, { passed, failed, problems }: Verdict): void {
  console.log(`${name.padEnd(26)} ${passed} passed, ${failed} failed`);
  for (const problem of problems) console.log(`  FAILED: ${problem}`);
}

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
process.env["PATH"] = [resolve("node_modules/.bin"), process.env["PATH"]].join(delimiter);
mkdirSync(OUTPUT, { recursive: true });
const { direct } = parseArgs({ options: { direct: { type: "boolean", default: false } } }).values;
const withSubject: Subject = direct ? withServer : withHub;
for (const suite of SUITES) {
  const verdict = await withSubject((url) => play(suite, url, direct));
  show(suite, verdict);
  if (verdict.problems.length > 0) process.exitCode = 1;
}
for (const [what, why] of Object.entries(LEFT_OUT)) console.log(`Left out: ${what}, as ${why}.`);
