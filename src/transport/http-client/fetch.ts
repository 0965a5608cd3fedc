import type { Buffer } from "node:buffer";
import { utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import type { ResponseHead } from "./connection.ts";
import { HttpConnectionPool, requestTargetOf } from "./pool.ts";
import { type ConnectOptions, openSocket } from "./connect.ts";

/** The supported part of `RequestInit`. */
export interface FetchInit {
  readonly method?: string;
  readonly headers?: HeadersInit;
  readonly body?: string | URLSearchParams | null;
  readonly signal?: AbortSignal | null;
}

/**
 * Like `fetch`. @throws {HubError} unreachable or tlsFailed (nothing was sent), answerLost, messageTooLarge, or the
 * signal's reason
 */
export type Fetch = (url: string | URL, init?: FetchInit) => Promise<Response>;

/** Maximum size of a response body, in bytes; a longer one fails with messageTooLarge. */
const LONGEST_BODY = 16 * 1024 * 1024;

/**
 * Makes a `fetch` for single requests with the same proxies and certificates as the transports. It follows no
 * redirects, reads up to 16 MiB of a body, and opens a connection per request.
 */
export function makeFetch(parts: ConnectOptions): Fetch {
  return (target, init = {}) => {
    const url = new URL(target);
    if (!/^https?:$/.test(url.protocol)) {
      const text = `${url.protocol}// is no kind of URL that can be requested.`;
      return Promise.reject(new HubError("unreachable", text, { step: "dial" }));
    }
    const lanes = new HttpConnectionPool((signal) => openSocket(url, parts, signal));
    return request(lanes, url, init);
  };
}

function request(lanes: HttpConnectionPool, url: URL, init: FetchInit): Promise<Response> {
  const { method = "GET", body = null, signal } = init;
  const headers = new Headers(init.headers);
  if (body instanceof URLSearchParams && !headers.has("content-type")) {
    headers.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
  }
  headers.set("accept-encoding", "identity");
  headers.set("connection", "close");
  for (const name of ["host", "content-length", "transfer-encoding"]) headers.delete(name);
  const fields = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const content = body === null ? undefined : [utf8(body.toString())];
  return new Promise((resolve, reject) => {
    const end = (): void => {
      signal?.removeEventListener("abort", give);
      lanes.close();
    };
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    let size = 0;
    const lose = (error: unknown): void => {
      end();
      reject(error);
      controller?.error(error);
    };
    const give = (): void => lose(signal?.reason);
    if (signal?.aborted === true) {
      give();
      return;
    }
    signal?.addEventListener("abort", give);
    const order = {
      method: method.toUpperCase(),
      place: requestTargetOf(url),
      fields,
      body: content,
    };
    lanes.send(order, {
      head({ status, fields: found }: ResponseHead) {
        const isBare = [204, 205, 304].includes(status);
        const stream = new ReadableStream<Uint8Array>({
          start: (given) => void (controller = given),
          cancel: end,
        });
        resolve(new Response(isBare ? null : stream, { status, headers: [...found] }));
      },
      body(bytes: Buffer) {
        size += bytes.length;
        if (size <= LONGEST_BODY) controller?.enqueue(bytes);
        else lose(new HubError("messageTooLarge", `What ${url.host} answers is too long.`));
      },
      end() {
        end();
        controller?.close();
      },
      fail(error, isUndelivered) {
        if (isUndelivered) lose(error);
        else lose(new HubError("answerLost", `${url.host} did not answer: ${error.message}.`));
      },
    });
  });
}
