import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { ReadShare } from "../../base/peer-reader.ts";
import { type ConnectOptions, openSocket } from "./open-socket.ts";
import { HttpConnectionPool, requestTargetOf } from "./pool.ts";
import type { ResponseHead } from "./response-parser.ts";

/** The supported part of `RequestInit`. */
export interface FetchInit {
  readonly method?: string;
  readonly headers?: HeadersInit;
  readonly body?: string | Uint8Array | URLSearchParams | null;
  readonly signal?: AbortSignal | null;
  /** The narrowest network scope (`network-scope.ts`) that the address may have; absent: any. */
  readonly allowedScope?: number;
  /** Maximum size of the response body, in bytes; by default 16 MiB. A longer body fails with messageTooLarge. */
  readonly maxBody?: number;
}

/**
 * Like `fetch`.
 * @throws {HubError} unreachable or tlsFailed (nothing was sent), answerLost, messageTooLarge, or the signal's reason
 */
export type Fetch = (url: string | URL, init?: FetchInit) => Promise<Response>;

/** The default of `FetchInit.maxBody`, and what is kept of a longer body that is not read, in bytes. */
const MAX_BODY = 16 * 1024 * 1024;

/**
 * Maximum number of bytes of all answers of one `fetch` that are handled in one turn of the event loop. It is low,
 * because the bytes are read by promises after the turn's share was measured: a model's event of 200 bytes costs its
 * readers some 50 µs.
 */
const MAX_BYTES_PER_TURN = 8 * 1024;

/**
 * Makes a `fetch` for single requests with the same proxies and certificates as the transports. It follows no
 * redirects and opens a connection per request.
 */
export function makeFetch(options: ConnectOptions): Fetch {
  const share = new ReadShare(MAX_BYTES_PER_TURN);
  return (input, init = {}) => {
    const url = new URL(input);
    if (!/^https?:$/.test(url.protocol)) {
      const text = `${url.protocol}// URLs are not supported.`;
      return Promise.reject(new HubError("unreachable", text, { step: "dial" }));
    }
    const pool = new HttpConnectionPool((signal) => {
      const { allowedScope } = init;
      return openSocket(url, { ...options, allowedScope }, signal);
    }, share);
    return request(pool, url, init);
  };
}

function request(pool: HttpConnectionPool, url: URL, init: FetchInit): Promise<Response> {
  const { method = "GET", body = null, signal, maxBody = MAX_BODY } = init;
  const headers = new Headers(init.headers);
  if (body instanceof URLSearchParams && !headers.has("content-type")) {
    headers.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
  }
  headers.set("accept-encoding", "identity");
  for (const name of ["host", "content-length", "transfer-encoding"]) headers.delete(name);
  const headerLines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const bodyPieces =
    body === null ? undefined : [body instanceof Uint8Array ? body : utf8(body.toString())];
  return new Promise((resolve, reject) => {
    const end = (): void => {
      signal?.removeEventListener("abort", onAbort);
      pool.close();
    };
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    let size = 0;
    const failWith = (error: unknown): void => {
      end();
      reject(error);
      controller?.error(error);
    };
    const onAbort = (): void => failWith(signal?.reason);
    if (signal?.aborted === true) {
      onAbort();
      return;
    }
    signal?.addEventListener("abort", onAbort);
    const pooledRequest = {
      method: method.toUpperCase(),
      target: requestTargetOf(url),
      headerLines,
      body: bodyPieces,
    };
    const handle = pool.send(pooledRequest, {
      head({ status, headers: responseHeaders }: ResponseHead) {
        const hasNoBody = [204, 205, 304].includes(status);
        const source = {
          start: (created: ReadableStreamDefaultController<Uint8Array>) =>
            void (controller = created),
          pull: () => handle.resume(),
          cancel: end,
        };
        const kept = new ByteLengthQueuingStrategy({ highWaterMark: MAX_BODY });
        const stream = new ReadableStream<Uint8Array>(source, kept);
        resolve(new Response(hasNoBody ? null : stream, { status, headers: [...responseHeaders] }));
      },
      body(bytes: Buffer) {
        size += bytes.length;
        if (size > maxBody) {
          failWith(new HubError("messageTooLarge", `The answer of ${url.host} is too large.`));
          return;
        }
        controller?.enqueue(bytes);
        if ((controller?.desiredSize ?? 1) <= 0) handle.pause();
      },
      end() {
        end();
        controller?.close();
      },
      fail(error, isUndelivered) {
        if (isUndelivered) failWith(error);
        else failWith(new HubError("answerLost", `${url.host} did not answer: ${error.message}.`));
      },
      broken: failWith,
    });
  });
}
