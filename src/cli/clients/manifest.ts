import { access } from "node:fs/promises";
import { basename, dirname } from "node:path";
import type { OwnEntry } from "../../clients/entry.ts";
import type { Taken } from "../../clients/plan.ts";
import { readContent } from "../../clients/reading.ts";
import { HubError } from "../../errors.ts";
import { type Change, editText } from "../../manifest/edit/edit.ts";
import { prepareEdit } from "../../manifest/edit/file.ts";
import { decode, readSmall } from "../../manifest/file.ts";
import { loadManifest } from "../../manifest/load.ts";
import { detectFormat } from "../../manifest/parse.ts";
import { manifestError } from "../../manifest/problem.ts";
import { HUB_DEFAULTS } from "../../manifest/schema.ts";
import { MAX_MANIFEST } from "../../manifest/trust.ts";
import type { Invocation, World } from "../command.ts";
import { loadOptions } from "../open.ts";
import { findFile, writeEdit } from "../servers/file.ts";

/** What the manifest has already; nothing if there is none yet. @throws {HubError} manifestInvalid */
export async function readTaken(invocation: Invocation, world: World): Promise<Taken> {
  const none = { servers: [], separator: HUB_DEFAULTS.separator };
  const file = await findFile(invocation, world);
  const loaded = await loadManifest(loadOptions(invocation, world));
  if (loaded.ok)
    return { servers: loaded.manifest.servers, separator: loaded.manifest.hub.separator };
  if (!(await exists(file))) return none;
  throw manifestError(loaded.problems);
}

/** Adds servers to a manifest and changes nothing else in it: all of them, or none. @throws {HubError} usage, manifestInvalid */
export async function addServers(
  file: string,
  servers: Readonly<Record<string, OwnEntry>>,
  world: World,
): Promise<void> {
  const changes = Object.entries(servers).map(([name, entry]): Change => ({
    kind: "add",
    name,
    entry,
  }));
  const read = await readSmall(file, MAX_MANIFEST);
  const text = read.kind === "read" ? (decode(read.bytes) ?? "") : "";
  await refuseForeign(file);
  const draft = { file, baseDir: dirname(file), format: detectFormat(file, text) };
  let tried = text;
  for (const change of changes) tried = (await editText({ ...draft, text: tried }, change)).text;
  for (const change of changes) await writeEdit(await prepareEdit(file, change), world);
}

/** What is written for another client is not ours to add to: it would not understand it. @throws {HubError} usage */
async function refuseForeign(file: string): Promise<void> {
  const content = await readContent(file, detectFormat(file, ""));
  const isForeign =
    content.kind === "read" && ["mcpServers", "inputs"].some((key) => key in content.root);
  if (!isForeign && !/^\.?mcp\.json$/.test(basename(file))) return;
  const text = `${file} is the file of another client; name a manifest of toolmux with --config.`;
  throw new HubError("usage", text);
}

function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
