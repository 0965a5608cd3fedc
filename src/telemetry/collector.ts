import type { Clock } from "../base/clock.ts";
import { toHubError } from "../base/errors.ts";
import type { OtlpProtocol } from "../manifest/telemetry.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import { basicAuthorization } from "../transport/http-client/url-credentials.ts";

/** The outcome of one post to a collector. */
export type PostOutcome =
  | { readonly kind: "taken" }
  /** The collector may take the same later. `after`: the time that it asks for, in ms; undefined: none. */
  | { readonly kind: "later"; readonly after: number | undefined; readonly reason: string }
  /** The collector does not take it. */
  | { readonly kind: "refused"; readonly reason: string };

export interface CollectorOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly protocol: OtlpProtocol;
  readonly fetch: Fetch;
  readonly clock: Clock;
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
}

/** Time limit of one post, in ms. */
const POST_LIMIT = 10_000;
/** Maximum length of a collector's answer that is told, in characters. */
const MAX_SAID = 200;
/** Of a collector's answer, no more is read, in characters. */
const MAX_READ = 16 * 1024;
/** Statuses after which the same may be sent again (OTLP, failures). */
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);
/** The longest time that a collector can ask for, in ms. */
const MAX_RETRY_AFTER = 5 * 60_000;

/** Posts to one URL of a collector (OTLP over HTTP). */
export class Collector {
  readonly #options: CollectorOptions;

  constructor(options: CollectorOptions) {
    this.#options = options;
  }

  /** Posts once. Never rejects. @param signal ends the post */
  async post(body: Uint8Array, signal: AbortSignal): Promise<PostOutcome> {
    const { url, headers, protocol, fetch, clock } = this.#options;
    const limit = new AbortController();
    const cancelTimer = clock.after(POST_LIMIT, () =>
      limit.abort(new Error(`it has not answered within ${POST_LIMIT / 1000} s`)),
    );
    const sent = new Headers(headers);
    const own = basicAuthorization(new URL(url));
    if (own !== undefined && !sent.has("Authorization")) sent.set("Authorization", own);
    sent.set(
      "Content-Type",
      protocol === "http/json" ? "application/json" : "application/x-protobuf",
    );
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: sent,
        body,
        signal: AbortSignal.any([signal, limit.signal]),
      });
      return await this.#outcomeOf(response);
    } catch (error) {
      const reason = this.#shown(toHubError(error).message);
      return { kind: "later", after: undefined, reason };
    } finally {
      cancelTimer();
    }
  }

  async #outcomeOf(response: Response): Promise<PostOutcome> {
    const { status, headers } = response;
    if (response.ok) {
      await response.body?.cancel();
      return { kind: "taken" };
    }
    // The status counts, also if the text that explains it does not arrive.
    const said = this.#shown(await startOfBody(response).catch(() => ""));
    const reason = `it has answered with status ${status}${said === "" ? "" : `: ${said}`}`;
    if (!RETRYABLE.has(status)) return { kind: "refused", reason };
    return { kind: "later", after: retryAfterOf(headers.get("Retry-After")), reason };
  }

  /** A text as a part of a sentence: in one line, and without secrets. */
  #shown(text: string): string {
    const { redact } = this.#options;
    return redact(text)
      .replaceAll(/[\p{C}\s]+/gu, " ")
      .trim()
      .slice(0, MAX_SAID)
      .replace(/(?<![.?!])[.?!]+$/, "");
  }
}

/** The start of the text of a response, of which a collector chooses the length. */
async function startOfBody({ body }: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  const reader = body?.getReader();
  while (text.length < MAX_READ) {
    const next = await reader?.read();
    if (next === undefined || next.done) return text;
    text += decoder.decode(next.value, { stream: true });
  }
  await reader?.cancel();
  return text.slice(0, MAX_READ);
}

/** The time of the header `Retry-After`, in ms (RFC 9110, 10.2.3). */
function retryAfterOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header.trim())
    ? Number(header) * 1000
    : new Date(header).getTime() - Date.now();
  return Number.isNaN(ms) ? undefined : Math.min(MAX_RETRY_AFTER, Math.max(0, ms));
}
