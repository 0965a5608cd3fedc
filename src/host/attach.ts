import process from "node:process";
import { attachKey } from "../attach/attach-name.ts";
import type { AttachRequest } from "../attach/handshake.ts";
import { joinHub, type JoinResult, joinRunningHub } from "../attach/join-hub.ts";
import { Relay } from "../attach/relay.ts";
import { systemClock } from "../base/clock.ts";
import { type HubError, outputFailedError } from "../base/errors.ts";
import { ownStdin, ownStdout } from "../base/own-streams.ts";
import { isBrokenPipe } from "../base/runtime.ts";
import type { SocketConnection } from "../base/unix-socket.ts";
import { VERSION } from "../base/version.ts";
import { LIMIT_DEFAULTS } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { untilParentGone } from "../process/parent-process.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import type { HostContext } from "./context.ts";

/** What the command line says about the client of an attached process. */
export type ClientFlags = Pick<AttachRequest, "mode" | "servers" | "approval" | "expose">;

export interface AttachOptions {
  readonly context: HostContext;
  /** The files of the manifest, absolute, in the order of merging. */
  readonly sources: readonly string[];
  /** Whether the user has named the files of the manifest. */
  readonly areNamed: boolean;
  /** Whether only a hub that runs is joined at first, and none is started. */
  readonly mustRun: boolean;
  readonly flags: ClientFlags;
  readonly log: CommandLog;
}

/**
 * `lost`: no hub could be joined any more. Nothing was read from the client if the hub has refused it (`refused`) or if no
 * shared hub can be used (`private`).
 */
export type AttachOutcome =
  | { readonly kind: "left" | "lost" }
  | { readonly kind: "refused"; readonly error: HubError }
  | { readonly kind: "private"; readonly reason: string };

/**
 * Attaches the client on stdin and stdout to the shared hub of a manifest until the client leaves, its process ends or a
 * signal arrives. Starts the hub if it does not run.
 * @throws {HubError} outputFailed
 */
export async function attachClient(options: AttachOptions): Promise<AttachOutcome> {
  const { context, sources, areNamed, mustRun, flags, log } = options;
  const { env, cwd, platform, signal } = context;
  const key = attachKey(sources, env);
  const request: AttachRequest = {
    version: VERSION,
    pid: process.pid,
    cwd,
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
  const first = mustRun ? await joinRunningHub({ env, platform, key, request }) : await join();
  signal.throwIfAborted();
  if (first === undefined) return { kind: "private", reason: "no shared hub runs" };
  if (first.kind === "unavailable") return { kind: "private", reason: first.error.message };
  if (first.kind === "refused") return first;
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
    maxMessage: first.maxMessage ?? LIMIT_DEFAULTS.maxMessage,
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
