import process from "node:process";
import { attachKey } from "../attach/attach-name.ts";
import type { AttachRequest } from "../attach/handshake.ts";
import { joinHub, type JoinResult } from "../attach/join-hub.ts";
import { Relay } from "../attach/relay.ts";
import { systemClock } from "../base/clock.ts";
import { type HubError, outputFailedError } from "../base/errors.ts";
import { isBrokenPipe, ownStdin, ownStdout } from "../base/runtime.ts";
import type { SocketConnection } from "../base/unix-socket.ts";
import { VERSION } from "../base/version.ts";
import { variablesOf } from "../manifest/client-values.ts";
import { type Manifest, messageLimit } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { untilParentGone } from "../process/parent-process.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import type { HostContext } from "./context.ts";

/** What the command line says about the client of an attached process. */
export type ClientFlags = Pick<AttachRequest, "mode" | "servers" | "approval" | "expose">;

export interface AttachOptions {
  readonly context: HostContext;
  readonly manifest: Manifest;
  /** Whether the user has named the files of the manifest. */
  readonly areNamed: boolean;
  readonly flags: ClientFlags;
  readonly log: CommandLog;
}

/** `private`: no shared hub can be used, and nothing was read from the client; `lost`: none could be joined any more. */
export type AttachOutcome =
  { readonly kind: "left" | "lost" } | { readonly kind: "private"; readonly reason: string };

/**
 * Attaches the client on stdin and stdout to the shared hub of a manifest until the client leaves, its process ends or a
 * signal arrives. Starts the hub if it does not run.
 * @throws {HubError} the error with which the hub has refused the client, after the client got it as the answer to its
 * requests; outputFailed
 */
export async function attachClient(options: AttachOptions): Promise<AttachOutcome> {
  const { context, manifest, areNamed, flags, log } = options;
  const { env, cwd, platform, signal } = context;
  const { sources } = manifest;
  const key = await attachKey(sources, env);
  const named = variablesOf(manifest).filter((name) => env[name] !== undefined);
  const request: AttachRequest = {
    version: VERSION,
    pid: process.pid,
    cwd,
    env: Object.fromEntries(named.map((name) => [name, env[name]])),
    path: env["PATH"],
    hubs: env[HUBS_VARIABLE],
    ...flags,
  };
  const start = { env, cwd, platform, key, sources, areNamed, endsWithoutClients: true };
  const join = (): Promise<JoinResult> =>
    joinHub({
      env,
      platform,
      key,
      request,
      signal,
      start: async () => {
        const { startSharedHubProcess } = await import("../attach/shared-hub-process.ts");
        return startSharedHubProcess(start);
      },
    });
  const first = await join();
  signal.throwIfAborted();
  if (first.kind === "unavailable") return { kind: "private", reason: first.error.message };
  if (first.kind === "refused") {
    const { answerWithError } = await import("./nesting.ts");
    await answerWithError(first.error, signal);
    throw first.error;
  }
  let outputError: HubError | undefined;
  const output = ownStdout((error) => {
    if (!isBrokenPipe(error)) outputError = outputFailedError(error);
    relay.close();
  });
  const relay = new Relay({
    input: ownStdin(),
    output,
    connection: first.connection,
    join: async (): Promise<SocketConnection> => {
      const next = await join();
      if (next.kind === "joined") return next.connection;
      throw next.error;
    },
    maxMessage: messageLimit(manifest),
    clock: systemClock,
    log: (text) => log("warn", text),
  });
  const close = (): void => relay.close();
  signal.addEventListener("abort", close, { once: true });
  void untilParentGone().then(close);
  const kind = await relay.run();
  signal.removeEventListener("abort", close);
  if (outputError !== undefined) throw outputError;
  return { kind };
}
