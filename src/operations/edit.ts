import { readFile, rm } from "node:fs/promises";
import { usageError } from "../base/errors.ts";
import { type Env, stateFolder } from "../base/paths.ts";
import { readFileLimited } from "../base/read-file.ts";
import { detectFormat } from "../manifest/syntax/parse.ts";
import { newManifestText, replaceFile } from "../manifest/edit/write.ts";
import { splitCommand } from "../manifest/interpolate.ts";
import { isTrusted, MAX_MANIFEST_SIZE, trust } from "../manifest/trust.ts";
import type { OperationContext } from "./context.ts";
import { withManifestLock } from "./manifest-file.ts";

/** Runs a program with the terminal of this process, and waits for its end. @returns its exit code */
export type RunEditor = (command: string, args: readonly string[]) => Promise<number>;

/**
 * The editor of the user as a command with arguments: `$VISUAL`, `$EDITOR`, or what every system has. No shell reads it.
 * @throws {HubError} usage if the variable is no command line
 */
export function editorOf(env: Env, platform: string): readonly [string, ...string[]] {
  const name = ["VISUAL", "EDITOR"].find((one) => (env[one] ?? "").trim() !== "");
  if (name === undefined) return [platform === "win32" ? "notepad" : "vi"];
  const [command, ...args] = splitCommand(env[name] ?? "") ?? [];
  if (command !== undefined) return [command, ...args];
  throw usageError(`${name} is no command line: it has a quote that is not closed.`);
}

/**
 * Lets the user edit a manifest in place. A missing file is created, and removed again if nothing was added to it. A
 * trusted file stays trusted, because the change is the user's own.
 * @param file absolute
 * @returns whether the file has changed
 * @throws {HubError} usage if the editor cannot be started or fails, or the file cannot be read
 */
export async function editManifestByHand(
  file: string,
  run: RunEditor,
  context: OperationContext,
): Promise<boolean> {
  const folder = stateFolder(context.env, context.platform);
  const read = await readFileLimited(file, MAX_MANIFEST_SIZE);
  if (read.kind === "refused") throw usageError(`${file} ${read.reason}.`);
  const isNew = read.kind === "absent";
  const empty = new TextEncoder().encode(newManifestText(detectFormat(file, "")));
  if (isNew) await replaceFile(file, undefined, empty);
  const before = isNew ? empty : read.bytes;
  const wasTrusted = !isNew && (await isTrusted(file, before, folder));
  const [command, ...args] = editorOf(context.env, context.platform);
  let isChanged = false;
  try {
    const code = await run(command, [...args, file]);
    if (code !== 0)
      throw usageError(
        `The editor ${command} ended with exit code ${code}: ${file} was not checked.`,
      );
  } finally {
    const bytes = await readFile(file).catch(() => undefined);
    isChanged = bytes === undefined || !bytes.equals(before);
    if (isNew && !isChanged) await rm(file, { force: true });
    if (wasTrusted && isChanged && bytes !== undefined)
      await withManifestLock(context, () => trust(file, bytes, folder));
  }
  return isChanged;
}
