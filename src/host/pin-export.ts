import { randomUUID } from "node:crypto";
import { rename, rm, writeFile } from "node:fs/promises";
import { HubError } from "../base/errors.ts";
import { stateFolder } from "../base/paths.ts";
import { utf8 } from "../base/bytes.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { formatPinFile } from "../manifest/pin-file.ts";
import { trust } from "../manifest/trust.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { withManifestLock } from "../operations/manifest-file.ts";
import { differencesFrom, type PinDifference } from "../pins/pin-file.ts";
import type { HostContext } from "./context.ts";
import { listDefinitions } from "./listed-definitions.ts";

/** What was written to a pin file. */
export interface PinExport {
  /** Absolute. */
  readonly file: string;
  readonly servers: number;
  readonly definitions: number;
}

/**
 * Starts the enabled servers, and writes the digests of what they list into the pin file. The file is trusted: the user
 * has made it.
 * @throws {HubError} usage if the manifest has no pin file, or something is not accepted; serverStopped if a server could
 * not be listed
 */
export async function exportPins(
  manifest: Manifest,
  context: HostContext,
  log: CommandLog,
): Promise<PinExport> {
  const { pinFile } = manifest;
  if (pinFile === undefined) throw noPinFile();
  // The present pin file must not hide what is to be written.
  const { pinFile: _, ...others } = manifest;
  const { listed, failed, pins } = await listDefinitions(others, true, context, log);
  refuseFailed(failed);
  const unaccepted = pins.find(({ pending, fault }) => pending.length > 0 || fault !== undefined);
  if (unaccepted !== undefined) {
    const text = `Not everything of server "${unaccepted.server}" is accepted, so the pin file was not written. See: toolmux pins ${unaccepted.server}`;
    throw new HubError("usage", text, { server: unaccepted.server });
  }
  const bytes = Uint8Array.from(utf8(formatPinFile(listed)));
  await withManifestLock(context, async () => {
    const temp = `${pinFile.path}.${randomUUID()}.draft`;
    try {
      await writeFile(temp, bytes);
      await rename(temp, pinFile.path);
    } catch (error) {
      await rm(temp, { force: true });
      const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
      throw new HubError("usage", `${pinFile.path} cannot be written (${code}).`);
    }
    await trust(pinFile.path, bytes, stateFolder(context.env, context.platform));
  });
  const definitions = [...listed.values()].reduce((sum, each) => sum + each.length, 0);
  return { file: pinFile.path, servers: listed.size, definitions };
}

/** The result of the comparison of a pin file with what servers list. */
export interface PinCheck {
  /** Absolute. */
  readonly file: string;
  readonly servers: number;
  readonly differences: readonly PinDifference[];
}

/**
 * Starts the enabled servers, and compares what they list with the pin file. Accepts nothing.
 * @throws {HubError} usage if the manifest has no pin file, or it cannot be used; serverStopped if a server could not be
 * listed
 */
export async function checkPins(
  manifest: Manifest,
  context: HostContext,
  log: CommandLog,
): Promise<PinCheck> {
  const { pinFile, ...others } = manifest;
  if (pinFile === undefined) throw noPinFile();
  const { path: file, content } = pinFile;
  if ("unusable" in content) throw new HubError("usage", content.unusable);
  const { listed, failed } = await listDefinitions(others, false, context, log);
  refuseFailed(failed);
  const known = manifest.servers.map(({ name }) => name);
  const differences = differencesFrom(content.servers, listed, known);
  return { file, servers: listed.size, differences };
}

function noPinFile(): HubError {
  const text =
    'The manifest has no pin file. To have one, set pinFile = "toolmux.pins.json" in [hub].';
  return new HubError("usage", text);
}

/** @throws {HubError} serverStopped */
function refuseFailed(failed: ReadonlyMap<string, string>): void {
  const [first] = failed;
  if (first === undefined) return;
  const [server, reason] = first;
  const text = `What server "${server}" lists is not known: ${reason}`;
  throw new HubError("serverStopped", text, { server });
}
