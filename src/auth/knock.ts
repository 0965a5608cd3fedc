import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { AuthChallenge } from "../transport/http/credentials.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import { withLimit } from "../base/limit.ts";

/** What a server is asked, and what it is asked if it knows nothing of that, as some of those of old do not. */
const QUESTIONS = [
  {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }),
  },
  { method: "GET", headers: { accept: "text/event-stream" } },
] as const;

export interface ChallengeProbe {
  readonly url: URL;
  /** What the manifest has requests bear. */
  readonly headers: Readonly<Record<string, string>>;
  readonly dial: Fetch;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** How long a server may take, in ms. */
const LIMIT = 10_000;

/**
 * Asks a server for something that it gives to nobody whom it does not know, to hear what it wants.
 * @returns undefined if it wants nothing, or does not say so
 * @throws {HubError} what `Dial` throws; unreachable if it takes too long
 */
export function requestChallenge(door: ChallengeProbe): Promise<AuthChallenge | undefined> {
  const text = `${door.url.host} did not answer within ${LIMIT / 1000} s.`;
  const limit = { ...door, after: LIMIT, reason: () => new HubError("unreachable", text) };
  return withLimit(limit, (signal) => ask(door, signal));
}

async function ask(
  { url, headers, dial }: ChallengeProbe,
  signal: AbortSignal,
): Promise<AuthChallenge | undefined> {
  for (const { headers: own, ...question } of QUESTIONS) {
    const response = await dial(url, { ...question, headers: { ...headers, ...own }, signal });
    const { status } = response;
    const header = response.headers.get("www-authenticate") ?? undefined;
    await response.body?.cancel();
    if (status === 401 || (status === 403 && header !== undefined)) return { status: 401, header };
    if (response.ok) return undefined;
  }
  return undefined;
}
