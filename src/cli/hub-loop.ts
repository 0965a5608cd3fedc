import process from "node:process";
import { StdioServerTransport } from "../frontend/stdio.ts";
import type { OwnStreams } from "../frontend/early-initialize.ts";
import type { HubError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import type { Manifest } from "../manifest/schema.ts";
import { sha256Hex } from "../manifest/trust.ts";
import { settlesWithin } from "../base/clock.ts";
import { buildError } from "../jsonrpc/message.ts";
import {
  checkNesting,
  formatOuterHubs,
  HUBS_VARIABLE,
  parseOuterHubs,
} from "../process/outer-hubs.ts";

/** So many characters of the digest name a manifest. */
const LENGTH = 16;

/** The same text for the same manifest: for the same files, and the same servers in the environment. */
async function identifyManifest({ sources, servers }: Manifest, env: Env): Promise<string> {
  const { realpath } = process.getBuiltinModule("node:fs/promises");
  const files = await Promise.all(sources.map((file) => realpath(file).catch(() => file)));
  const variable = env["TOOLMUX_SERVERS"]?.trim() ?? "";
  const isNowhere = files.length === 0 && variable === "";
  const text = JSON.stringify([files, variable, isNowhere ? servers : []]);
  return (await sha256Hex(new TextEncoder().encode(text))).slice(0, LENGTH);
}

/**
 * Refuses to be a hub if the hubs above this process say that it would be one without end; see `checkNesting`.
 * @throws {HubError} hubLoop
 */
export async function refuseLoop(manifest: Manifest, env: Env, repeats: number): Promise<void> {
  const outer = parseOuterHubs(env[HUBS_VARIABLE]);
  // Nearly always: then nothing has to be known of the manifest.
  if (outer.length === 0) return;
  checkNesting(outer, await identifyManifest(manifest, env), repeats);
}

/** What servers of a hub with that manifest get as the list of the hubs above them. */
export async function listHubs(manifest: Manifest, env: Env): Promise<string | undefined> {
  const own = { pid: process.pid, manifest: await identifyManifest(manifest, env) };
  return formatOuterHubs([...parseOuterHubs(env[HUBS_VARIABLE]), own]);
}

/** How long a client that says nothing is waited for, in ms; and one that was answered, until it leaves. */
const LIMIT = 5000;
const LINGER = 1000;
/** The longest message that is read, in bytes. */
const MAX_MESSAGE = 1024 * 1024;

/** Tells the client on stdin and stdout why there is no hub: whatever it asks is answered with the error, until it leaves. */
export async function answerWith(
  refusal: HubError,
  streams: OwnStreams | undefined,
  signal: AbortSignal,
): Promise<void> {
  const own = new StdioServerTransport(MAX_MESSAGE, streams);
  const left = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => left.resolve(), { once: true });
  await own.open(
    {
      frame: (frame) => {
        if (frame.kind !== "request") return;
        own.send(buildError(frame.id, refusal.toRpc()));
        asked.resolve();
      },
      log() {},
      oversized() {},
      pressure() {},
      closed: () => left.resolve(),
    },
    signal,
  );
  const isAsked = await settlesWithin(LIMIT, Promise.race([asked.promise, left.promise]));
  if (isAsked) await settlesWithin(LINGER, left.promise);
  await own.close();
}
