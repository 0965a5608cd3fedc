import { HubError } from "../errors.ts";
import { loadManifest } from "../manifest/load.ts";
import { printProblem } from "../manifest/problem.ts";
import type { Manifest, ServerSpec } from "../manifest/schema.ts";
import { resolveServer } from "../manifest/secrets.ts";
import type { Invocation, World } from "./command.ts";
import { describeCommand } from "./commandline.ts";
import { openLog } from "./open.ts";
import { findPaper, alignTable } from "./print.ts";

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
  if (invocation.json !== false) {
    const files = loaded.ok ? loaded.manifest.sources : [];
    const ok = loaded.ok;
    console.log(JSON.stringify({ ok, problems, notes, files, servers: rows }, null, 2));
    return ok ? 0 : 2;
  }
  const log = openLog(invocation);
  for (const note of notes) log("warn", note);
  for (const problem of problems) console.warn(printProblem(problem));
  if (!loaded.ok) return 2;
  for (const file of loaded.manifest.sources) console.log(`manifest: ${file}`);
  const table = rows.map(({ name, state, text }) => [name, state, text]);
  if (table.length > 0)
    console.log(alignTable(["SERVER", "STATE", "COMMAND"], table, findPaper(env)));
  console.log(`no problems; ${countServers(rows)}`);
  return 0;
}

function countServers(rows: readonly Row[]): string {
  const started = rows.filter(({ state }) => state === "starts").length;
  const whole = `${rows.length} ${rows.length === 1 ? "server" : "servers"}`;
  return started === rows.length ? whole : `${whole}, of which ${started} would start`;
}

function examine({ servers }: Manifest, world: World): Promise<Row[]> {
  return Promise.all(servers.map((spec) => examineServer(spec, world)));
}

async function examineServer(spec: ServerSpec, { env, cwd }: World): Promise<Row> {
  const { name } = spec;
  if (spec.kind === "unsupported") return { name, state: "unsupported", text: spec.reason };
  const text = describeCommand(spec);
  if (!spec.enabled) return { name, state: "disabled", text };
  try {
    await resolveServer(spec, env, cwd);
    return { name, state: "starts", text };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { name, state: "incomplete", text: error.message };
  }
}
