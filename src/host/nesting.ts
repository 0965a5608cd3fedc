import process from "node:process";
import { StdioServerTransport } from "../frontend/stdio.ts";
import type { HubError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { manifestIdentity } from "../manifest/identity.ts";
import { settlesWithin } from "../base/clock.ts";
import { buildError } from "../jsonrpc/message.ts";
import {
  checkNesting,
  formatOuterHubs,
  HUBS_VARIABLE,
  MAX_NESTED_HUBS,
  type OuterHub,
  parseOuterHubs,
} from "../process/outer-hubs.ts";

/**
 * Refuses to start if the list of outer hubs (environment variable HUBS_VARIABLE) shows that hubs start each other in
 * an endless loop.
 * @param repeats how many outer hubs may have the same manifest
 * @throws {HubError} hubLoop
 */
export async function checkHubLoop(manifest: Manifest, env: Env, repeats: number): Promise<void> {
  const outer = parseOuterHubs(env[HUBS_VARIABLE]);
  if (outer.length === 0) return;
  checkNesting(outer, await manifestIdentity(manifest, env), repeats);
}

/**
 * The value of HUBS_VARIABLE for this hub's servers: the list of outer hubs, then this hub.
 * @param more further outer hubs: those above the clients of a shared hub
 */
export async function hubListFor(
  manifest: Manifest,
  env: Env,
  more: readonly OuterHub[] = [],
): Promise<string | undefined> {
  const own = { pid: process.pid, manifest: await manifestIdentity(manifest, env) };
  const outer = parseOuterHubs(env[HUBS_VARIABLE]);
  // Clients at different depths are no chain of hubs: only as many are named as a chain may have.
  const room = Math.max(0, MAX_NESTED_HUBS - 1 - outer.length);
  return formatOuterHubs([...outer, ...more.slice(0, room), own]);
}

/**
 * `REQUEST_TIMEOUT`: maximum wait for the client's first request. `LEAVE_TIMEOUT`: maximum wait for the client to
 * disconnect after it got the answer. Both in ms.
 */
const REQUEST_TIMEOUT = 5000;
const LEAVE_TIMEOUT = 1000;
/** Maximum length of a message that is read, in bytes. */
const MAX_MESSAGE = 1024 * 1024;

/**
 * Answers every request on stdin with `startError` until the client disconnects, so that the client can show why the
 * hub did not start.
 */
export async function answerWithError(startError: HubError, signal: AbortSignal): Promise<void> {
  const stdio = new StdioServerTransport(MAX_MESSAGE);
  const left = Promise.withResolvers<void>();
  const requested = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => left.resolve(), { once: true });
  await stdio.open(
    {
      message: (message) => {
        if (message.kind !== "request") return;
        stdio.send(buildError(message.id, startError.toRpc()));
        requested.resolve();
      },
      log() {},
      oversized() {},
      pressure() {},
      closed: () => left.resolve(),
    },
    signal,
  );
  const isRequested = await settlesWithin(
    REQUEST_TIMEOUT,
    Promise.race([requested.promise, left.promise]),
  );
  if (isRequested) await settlesWithin(LEAVE_TIMEOUT, left.promise);
  await stdio.close();
}
