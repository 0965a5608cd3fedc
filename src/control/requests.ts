import type { Context, MiddlewareHandler } from "hono";
import * as v from "valibot";
import { systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import { EVENT_KINDS, type EventKind, type LogLevel } from "../base/hub-events.ts";
import { MAX_RECEIVING, RequestBodies } from "../frontend/http/request-body.ts";
import { parseDuration } from "../manifest/fields.ts";
import { findNearest } from "../manifest/problems.ts";
import type { CallDetail } from "./schemas.ts";

/*
 * Helpers for all endpoints of the control API: they read the body and the query of a request, and answer errors.
 */

/** Maximum value of `wait`, in ms. */
const MAX_WAIT = 10 * 60_000;

/**
 * The error of a request that names something that is not there.
 * @param what the missing thing, such as `server "files"`
 * @param known the names of the things that exist
 */
export function notFound(what: string, name = "", known: readonly string[] = []): HubError {
  const nearest = findNearest(name, known);
  const more = nearest === undefined ? "" : ` Did you mean "${nearest}"?`;
  return new HubError("notFound", `There is no ${what}.${more}`);
}

export function errorBody(code: string, message: string): object {
  return { error: { code, message } };
}

/** Maximum size of a request's body, in bytes. */
const MAX_BODY = 1024 * 1024;

/**
 * Middleware that reads the body of a request, of at most 1 MiB, before its handler is called. Bodies share the turns of
 * the event loop with other peers.
 */
export function readBodyFirst(): MiddlewareHandler {
  const bodies = new RequestBodies(systemClock, MAX_RECEIVING);
  return async (c, next) => {
    const { raw } = c.req;
    if (raw.body === null || BODILESS_METHODS.has(raw.method)) return next();
    const body = await bodies.read(raw, MAX_BODY);
    if (body === "tooLarge")
      throw new HubError("messageTooLarge", "The body of the request is larger than 1 MiB.");
    if (typeof body === "string")
      throw new HubError("invalidParams", "The body of the request could not be read to its end.");
    const { url, method, headers, signal } = raw;
    c.req.raw = new Request(url, { method, headers, signal, body: new Uint8Array(body) });
    return next();
  };
}
const BODILESS_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE"]);

export async function readBody<Schema extends v.GenericSchema>(
  c: Context,
  schema: Schema,
): Promise<v.InferOutput<Schema>> {
  const text = await c.req.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new HubError("invalidParams", "The body must be JSON.");
  }
  const result = v.safeParse(schema, body);
  if (result.success) return result.output;
  const [issue] = result.issues;
  const path = v.getDotPath(issue) ?? "the body";
  throw new HubError("invalidParams", `${path}: ${issue.message}`);
}

/** Parses how long an answer may wait, such as "30s". @returns ms */
export function parseWait(text: string): number {
  const wait = parseDuration(text);
  if (wait !== undefined && wait <= MAX_WAIT) return wait;
  throw new HubError(
    "invalidParams",
    'wait must be a duration of at most 10 minutes, such as "30s".',
  );
}

/** Parses a duration such as "1h". @param name the parameter's name in the query @returns ms */
export function parseDurationParam(text: string, name: string): number {
  const duration = parseDuration(text);
  if (duration !== undefined) return duration;
  throw new HubError("invalidParams", `${name} must be a duration, such as "1h".`);
}

export function parseNumberParam(text: string, name: string): number {
  const number = Number(text);
  if (text !== "" && Number.isSafeInteger(number) && number >= 0) return number;
  throw new HubError("invalidParams", `${name} must be a whole number.`);
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

export function parseLogLevel(text: string): LogLevel {
  const level = LEVELS.find((one) => one === text);
  if (level !== undefined) return level;
  throw new HubError("invalidParams", `level must be one of ${LEVELS.join(", ")}.`);
}

/** The kinds of `?kinds=state,log`; `call` stands for all events of calls. */
export function parseKinds(text: string): readonly EventKind[] {
  return text.split(",").flatMap((name) => {
    const kinds = EVENT_KINDS.filter(
      (kind) => kind === name || (name === "call" && kind.startsWith("call")),
    );
    if (kinds.length > 0) return kinds;
    const known = ["call", ...EVENT_KINDS];
    const nearest = findNearest(name, known);
    const more =
      nearest === undefined ? ` The kinds are ${known.join(", ")}.` : ` Did you mean "${nearest}"?`;
    throw new HubError("invalidParams", `There is no kind of event "${name}".${more}`);
  });
}

/** The value of `?calls=`: `all` for the event of every call; `counted` for numbers, if there are many calls. */
export function parseCallDetail(text: string): CallDetail {
  if (text === "all" || text === "counted") return text;
  throw new HubError("invalidParams", 'calls must be "all" or "counted".');
}
