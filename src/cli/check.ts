import { isAbsolute } from "node:path";
import { HubError } from "../errors.ts";
import { decode, readSmall } from "../manifest/file.ts";
import type { Env } from "../manifest/folders.ts";
import { loadManifest } from "../manifest/load.ts";
import { type Problem, printProblem } from "../manifest/problem.ts";
import type { Manifest, ServerSpec } from "../manifest/schema.ts";
import { resolveServer } from "../manifest/secrets.ts";
import { MAX_MANIFEST } from "../manifest/trust.ts";
import type { Invocation, World } from "./command.ts";
import { describeStart } from "./commandline.ts";
import { openLog } from "./open.ts";
import { drawProblem } from "./picture.ts";
import { alignTable, count, findPaper } from "./print.ts";
import { printLine } from "./report.ts";

/** One server as `check` shows it. */
interface Row {
  readonly name: string;
  readonly state: "starts" | "disabled" | "unsupported" | "incomplete";
  /** What would be run, or why nothing would. Holds no secret. */
  readonly text: string;
}

/** Reads the manifest, says all that is wrong with it, or what it would start. Starts nothing. */
export async function check(invocation: Invocation, world: World): Promise<number> {
  const { env, cwd, platform } = world;
  const loaded = await loadManifest({ files: invocation.config, env, cwd, platform });
  const { notes } = loaded;
  const rows = loaded.ok ? await examine(loaded.manifest, world) : [];
  const problems = loaded.ok ? [] : loaded.problems;
  const counted = count(problems.length, "problem");
  if (invocation.json !== false) {
    const files = loaded.ok ? loaded.manifest.sources : [];
    const ok = loaded.ok;
    const document = { ok, problems: problems.map(toJson), notes, files, servers: rows };
    console.log(JSON.stringify(document, null, 2));
    return ok ? 0 : 2;
  }
  const log = openLog(invocation);
  for (const note of notes) log("warn", note);
  for (const problem of problems) await tellProblem(problem, world);
  if (!loaded.ok) {
    printLine(`${counted}; nothing would be started`);
    return 2;
  }
  for (const file of loaded.manifest.sources) console.log(`manifest: ${file}`);
  const table = rows.map(({ name, state, text }) => [name, state, text]);
  if (table.length > 0)
    console.log(alignTable(["SERVER", "STATE", "COMMAND"], table, findPaper(env)));
  console.log(`no problems; ${countServers(rows)}`);
  return 0;
}

async function tellProblem(problem: Problem, { env }: World): Promise<void> {
  console.warn(printProblem(problem));
  const source = await readSource(problem.file, env);
  const picture = source && drawProblem(problem, source, findPaper(env, "stderr"));
  if (picture) console.warn(picture);
}

/** The text that a problem is in, once more; undefined if it cannot be read. */
async function readSource(file: string, env: Env): Promise<string | undefined> {
  const variable = isAbsolute(file) ? undefined : env[file];
  if (variable !== undefined) return variable.trim();
  const read = await readSmall(file, MAX_MANIFEST);
  return read.kind === "read" ? decode(read.bytes) : undefined;
}

/** Line and column count from 1, columns in UTF-16 code units; null where there is no place. */
function toJson({ file, position, path, message }: Problem): object {
  return { file, line: position?.line ?? null, column: position?.column ?? null, path, message };
}

function countServers(rows: readonly Row[]): string {
  const started = rows.filter(({ state }) => state === "starts").length;
  const whole = count(rows.length, "server");
  return started === rows.length ? whole : `${whole}, of which ${started} would start`;
}

function examine({ servers }: Manifest, world: World): Promise<Row[]> {
  return Promise.all(servers.map((spec) => examineServer(spec, world)));
}

async function examineServer(spec: ServerSpec, { env, cwd }: World): Promise<Row> {
  const { name } = spec;
  if (spec.kind === "unsupported") return { name, state: "unsupported", text: spec.reason };
  const text = describeStart(spec);
  if (!spec.enabled) return { name, state: "disabled", text };
  if (spec.kind === "plugin") return { name, state: "starts", text };
  try {
    await resolveServer(spec, env, cwd);
    return { name, state: "starts", text };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { name, state: "incomplete", text: error.message };
  }
}
