import { resolve } from "node:path";
import process from "node:process";
import type { ServedHub } from "../frontend/http/server.ts";
import type { TransportWrapper } from "../hub/options.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { openRecordingFile, Recorder } from "../recording/recorder.ts";
import { recordHttpServer, recordTransport } from "../recording/recorded-transport.ts";
import { recordableManifest } from "../recording/recorded-manifest.ts";
import type { Transport } from "../transport/transport.ts";
import { Redactor } from "../transport/redact.ts";
import type { SystemEnvironment } from "../base/paths.ts";

/** Default size limit of a recording, in bytes. */
const DEFAULT_LIMIT = 256 * 1024 * 1024;

/** A recording that was asked for. */
export interface RecordingRequest {
  /** The file, relative to the working directory. */
  readonly path: string;
  /** Size limit in bytes; undefined: `DEFAULT_LIMIT`. */
  readonly limit: number | undefined;
}

/**
 * A recording in progress. It makes wrappers for the transports and the HTTP server of a hub, which record all
 * messages.
 */
export interface HubRecording {
  readonly makeTransportWrapper: (redact: (text: string) => string) => TransportWrapper;
  recordClient(transport: Transport): Transport;
  recordHttp(hub: ServedHub): ServedHub;
  manifest(manifest: Manifest): void;
  close(): Promise<void>;
}

/**
 * Opens a recording.
 * @param secrets values to redact, in addition to those that are resolved for servers
 * @throws {HubError} usage if the file cannot be written
 */
export async function openHubRecording(
  { path, limit = DEFAULT_LIMIT }: RecordingRequest,
  { cwd }: Pick<SystemEnvironment, "cwd">,
  secrets: readonly string[],
  warn: (text: string) => void,
): Promise<HubRecording> {
  const sink = await openRecordingFile(resolve(cwd, path));
  const own = new Redactor(secrets);
  let redactServerSecrets = (text: string): string => text;
  const recorder = new Recorder({
    sink,
    limit,
    redact: (text) => own.apply(redactServerSecrets(text)),
    now: () => performance.now(),
    warn,
  });
  const flush = (): void => recorder.flushNow();
  // The lines that are not written yet are written at exit: if a bug ends the process, they show what led to it.
  process.once("exit", flush);
  return {
    makeTransportWrapper: (redact) => {
      redactServerSecrets = redact;
      return (transport, server) =>
        recordTransport(transport, recorder.nextServerRun(server), recorder);
    },
    recordClient: (transport) => recordTransport(transport, recorder.nextClient(), recorder),
    recordHttp: (hub) => recordHttpServer(hub, recorder),
    manifest: (manifest) => recorder.manifest(recordableManifest(manifest)),
    close: async () => {
      await recorder.close();
      process.removeListener("exit", flush);
    },
  };
}
