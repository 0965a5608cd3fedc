import { access, lstat, readdir } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { clientFoldersOf, CLIENTS } from "../../client-configs/clients.ts";
import { findOwnExecutable } from "../../manifest/files/client-entry.ts";
import { planImport } from "../../client-configs/import-plan.ts";
import { type ClientFile, readClientFiles } from "../../client-configs/read.ts";
import type { Finding } from "./findings.ts";
import { findHomeFolder } from "../../base/paths.ts";
import { isTempFile, MAX_TEMP_FILE_AGE } from "../../base/private-files.ts";
import { TOOLMUX_KEY } from "../../manifest/files/own-entry.ts";
import { isTable } from "../../manifest/table.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { HostContext } from "../context.ts";

/**
 * Checks the files of MCP clients for servers that both a client and toolmux start, and for clients that start a
 * toolmux executable which does not exist.
 * @param now ms since the epoch
 */
export async function checkClients(
  manifest: Manifest | undefined,
  { env, platform }: HostContext,
  now: number,
): Promise<readonly Finding[]> {
  if (findHomeFolder(env) === undefined) return [];
  const home = clientFoldersOf(env, platform);
  const files = (
    await Promise.all(CLIENTS.map((it) => readClientFiles(it, home, undefined)))
  ).flat();
  const tempFiles = await Promise.all(files.map(({ file }) => findTempFiles(file, now)));
  const stale = await Promise.all(files.map(findMissingExecutables));
  const findings = [...files.flatMap(describeFileProblem), ...stale.flat(), ...tempFiles.flat()];
  if (manifest === undefined) return findings;
  const { servers, hub } = manifest;
  for (const file of files) {
    const plan = await planImport([file], { servers, separator: hub.separator }, home);
    const names = plan.skipped.flatMap(({ source, identicalServer }) =>
      servers.some(({ name, enabled }) => enabled && name === identicalServer)
        ? [`"${source.name}"`]
        : [],
    );
    if (names.length === 0) continue;
    const text = `${file.client.title} starts ${names.join(", ")} itself; toolmux starts the same servers.`;
    const advice = `To make it start only toolmux: toolmux install ${file.client.name} --replace`;
    findings.push({ code: "TM951", subject: file.file, text, advice });
  }
  return findings;
}

function describeFileProblem({ client, file, problem }: ClientFile): readonly Finding[] {
  if (problem === undefined) return [];
  const { position, message } = problem;
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}`;
  return [{ code: "TM952", subject: place, text: `The file of ${client.title}: ${message}.` }];
}

async function findMissingExecutables({
  client,
  file,
  servers,
}: ClientFile): Promise<readonly Finding[]> {
  const found = await Promise.all(
    servers.map(async ({ name, entry }): Promise<readonly Finding[]> => {
      const named = name === TOOLMUX_KEY && isTable(entry) ? entry["command"] : undefined;
      const isPath = typeof named === "string" && isAbsolute(named);
      const path = findOwnExecutable(entry) ?? (isPath ? named : undefined);
      if (path === undefined) return [];
      const isThere = await access(path).then(
        () => true,
        () => false,
      );
      if (isThere) return [];
      const text = `${client.title} starts ${path}, but that file does not exist.`;
      return [
        {
          code: "TM953",
          subject: file,
          text,
          advice: `To correct it: toolmux install ${client.name}`,
        },
      ];
    }),
  );
  return found.flat();
}

/** Finds old temporary files that were left beside a client's file. @param now ms since the epoch */
async function findTempFiles(file: string, now: number): Promise<readonly Finding[]> {
  const folder = dirname(file);
  const names = await readdir(folder).catch(() => []);
  const tempFiles = names.filter(
    (name) => name.startsWith(`${basename(file)}.`) && isTempFile(name),
  );
  const found = await Promise.all(
    tempFiles.map(async (name): Promise<readonly Finding[]> => {
      const path = join(folder, name);
      const { mtimeMs } = await lstat(path).catch(() => ({ mtimeMs: now }));
      if (now - mtimeMs <= MAX_TEMP_FILE_AGE) return [];
      const text = "This temporary file was left by a program that ended before it finished.";
      const fixes = [{ kind: "remove", path }] as const;
      return [
        {
          code: "TM602",
          subject: path,
          text,
          advice: "To correct it: toolmux doctor --fix",
          fixes,
        },
      ];
    }),
  );
  return found.flat();
}
