import type { HttpAnswer } from "./answer.ts";

/** How the end of an answer's body is marked. */
export interface BodyFraming {
  /** Length of the body in bytes; undefined: it is chunked, or ends with the connection. */
  readonly length: number | undefined;
  readonly isChunked: boolean;
  /** The connection closes after it. */
  readonly isLast: boolean;
}

const REASON_PHRASES: Readonly<Record<number, string>> = {
  200: "OK",
  202: "Accepted",
  204: "No Content",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  408: "Request Timeout",
  413: "Content Too Large",
  415: "Unsupported Media Type",
  417: "Expectation Failed",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  501: "Not Implemented",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};

/** Status line and headers of an answer, with the empty line. */
export function formatResponseHead({ status, headers }: HttpAnswer, framing: BodyFraming): string {
  const { length, isChunked, isLast } = framing;
  let text = `HTTP/1.1 ${status} ${REASON_PHRASES[status] ?? ""}\r\n`;
  for (const [name, value] of headers) text += `${name}: ${value}\r\n`;
  text += `Date: ${dateOf(Date.now())}\r\n`;
  if (isChunked) text += "Transfer-Encoding: chunked\r\n";
  else if (length !== undefined && !hasNoBody(status)) text += `Content-Length: ${length}\r\n`;
  return isLast ? `${text}Connection: close\r\n\r\n` : `${text}\r\n`;
}

/** Whether answers of a status have neither body nor Content-Length (RFC 9110, 15.3.5 and 15.4.5). */
export function hasNoBody(status: number): boolean {
  return status === 204 || status === 304;
}

const cachedDate = { second: 0, text: "" };

/** The time as an HTTP date, formatted once a second: it costs more than the rest of a head. */
function dateOf(now: number): string {
  const second = Math.floor(now / 1000);
  if (second !== cachedDate.second) {
    cachedDate.second = second;
    cachedDate.text = new Date(now).toUTCString();
  }
  return cachedDate.text;
}
