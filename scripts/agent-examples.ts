/**
 * Says which files of agents in a folder toolmux can run completely: `bun scripts/agent-examples.ts FOLDER [MANIFEST]`.
 * For each file, prints `complete`, or what lacks with the line to add. Toolsets are provided as `toolmux agents add`
 * offers them, and as the manifest says, if one is named. Sends and starts nothing.
 */
import { readdir } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import process from "node:process";
import {
  AGENT_FILE_DEFAULTS,
  AgentLibrary,
  readAgentText,
  siblingFileReader,
} from "../src/agent-files/agent-library.ts";
import type { AgentFile } from "../src/agent-files/agent-file.ts";
import { OFFERED_TOOLSETS } from "../src/agent-files/toolsets.ts";
import { readFileLimited } from "../src/base/read-file.ts";
import { MAX_AGENT_FILE } from "../src/agent-files/agent-file.ts";
import { loadManifest } from "../src/manifest/load.ts";
import { formatProblem } from "../src/manifest/problems.ts";

const [folder, manifestFile] = process.argv.slice(2);
if (folder === undefined) {
  process.stderr.write("Which folder? bun scripts/agent-examples.ts FOLDER [MANIFEST]\n");
  process.exit(2);
}
const { env, platform } = process;
const root = resolve(folder);
const loaded =
  manifestFile === undefined
    ? undefined
    : await loadManifest({ files: [resolve(manifestFile)], env, cwd: process.cwd(), platform });
const toolsets = loaded?.ok === true ? loaded.manifest.agentFiles?.toolsets : undefined;
const library = new AgentLibrary({
  agents: new Map(),
  settings: { ...AGENT_FILE_DEFAULTS, toolsets },
  baseDir: root,
  env,
  cwd: process.cwd(),
  platform,
});

/** The files of agents below a folder, sorted. */
async function filesIn(path: string): Promise<readonly string[]> {
  const entries = await readdir(path, { withFileTypes: true });
  const found = await Promise.all(
    entries.map(async (entry): Promise<readonly string[]> => {
      const full = join(path, entry.name);
      if (entry.isDirectory()) return filesIn(full);
      return /\.ya?ml$/i.test(entry.name) ? [full] : [];
    }),
  );
  return found.flat().toSorted();
}

/** What lacks in a file, one line for each; none: it is complete. */
async function lackingIn(path: string): Promise<readonly string[]> {
  const read = await readFileLimited(path, MAX_AGENT_FILE);
  if (read.kind !== "read") return ["cannot be read"];
  const near = siblingFileReader(dirname(path), () => {});
  const result = await readAgentText(read.bytes, path, dirname(path), near);
  if (!result.ok) return ["refused", ...result.problems.map(formatProblem)];
  const file: AgentFile = library.provide(result.file, { toolsets: OFFERED_TOOLSETS });
  return file.unsupported.map(formatProblem);
}

let complete = 0;
const files = await filesIn(root);
for (const path of files) {
  const lacking = await lackingIn(path);
  const name = relative(root, path);
  if (lacking.length === 0) complete++;
  process.stdout.write(`${name}: ${lacking.length === 0 ? "complete" : "lacks"}\n`);
  for (const line of lacking) process.stdout.write(`  ${line.replace(`${path}:`, "")}\n`);
}
process.stdout.write(`${complete} of ${files.length} files are complete\n`);
