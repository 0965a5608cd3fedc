import type { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { JsonObject } from "../base/json.ts";
import {
  type Message,
  type Notification,
  paramsOf,
  readId,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { isSecretName } from "../manifest/plaintext-secrets.ts";
import { Method } from "../protocol/legacy.ts";
import { MetaKey, ModernMethod } from "../protocol/modern.ts";
import { MASK } from "./mask.ts";
import type { RecordedLine } from "./reader.ts";

/** Maximum number of differences, and maximum length of a displayed value, in characters. */
const MAX_DIFFERENCES = 50;
const MAX_SHOWN_LENGTH = 60;

/**
 * The key of a request, equal for equal requests: its params as JSON text with sorted members. `_meta` is left out,
 * because its progress token differs each time.
 */
export function formatRequestKey(bytes: Buffer, params: ByteRange | undefined): string {
  if (params === undefined) return "{}";
  const text = textOf(bytes, params.start, params.end);
  try {
    const { _meta, ...rest } = JSON.parse(text) as Record<string, unknown>;
    return JSON.stringify(rest, sortMembers);
  } catch {
    return text;
  }
}

function sortMembers(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const keys = Object.keys(value);
  const isSorted = keys.every((key, at) => at === 0 || (keys[at - 1] ?? "") <= key);
  if (isSorted) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * A difference between a recorded value and an actual one: the path, such as `arguments.path[2]`, and both values.
 */
export interface ValueDifference {
  readonly path: string;
  readonly recorded: string;
  readonly asked: string;
}

/**
 * The differences between a recorded request key and an actual one; empty if they match. Masked values match
 * anything.
 */
export function compareRequestKeys(recorded: string, actual: string): readonly ValueDifference[] {
  const found: ValueDifference[] = [];
  collectDifferences(parseOrText(recorded), parseOrText(actual), "", "", found);
  return found;
}

function parseOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function collectDifferences(
  a: unknown,
  b: unknown,
  path: string,
  key: string,
  found: ValueDifference[],
): void {
  if (
    found.length >= MAX_DIFFERENCES ||
    Object.is(a, b) ||
    (typeof a === "string" && matchesRecorded(a, b))
  )
    return;
  if (Array.isArray(a) && Array.isArray(b)) {
    const length = Math.max(a.length, b.length);
    for (let at = 0; at < length && found.length < MAX_DIFFERENCES; at++) {
      collectDifferences(a[at], b[at], `${path}[${at}]`, key, found);
    }
    return;
  }
  if (isTable(a) && isTable(b)) {
    for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const childPath = path === "" ? name : `${path}.${name}`;
      collectDifferences(ownMember(a, name), ownMember(b, name), childPath, name, found);
    }
    return;
  }
  const isSecret = isSecretName(key);
  const actual = isSecret && b !== undefined ? "[not shown]" : formatShown(b);
  found.push({ path: path === "" ? "all" : path, recorded: formatShown(a), asked: actual });
}

function ownMember(table: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** Whether an actual value matches a recorded string, in which a mask matches any text. */
function matchesRecorded(recorded: string, actual: unknown): boolean {
  if (!recorded.includes(MASK)) return recorded === actual;
  // A masked number is recorded as a string.
  if (recorded === MASK) return typeof actual === "string" || typeof actual === "number";
  if (typeof actual !== "string") return false;
  const parts = recorded.split(MASK);
  const last = parts.pop() ?? "";
  let at = 0;
  for (const [index, part] of parts.entries()) {
    const next = index === 0 ? (actual.startsWith(part) ? 0 : -1) : actual.indexOf(part, at);
    if (next < 0) return false;
    at = next + part.length;
  }
  return actual.length - last.length >= at && actual.endsWith(last);
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function formatShown(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = JSON.stringify(value);
  return text.length <= MAX_SHOWN_LENGTH ? text : `${text.slice(0, MAX_SHOWN_LENGTH)}…`;
}

/**
 * One step of a server. `wait`: ms since the previous step; for the first step, since the request. `line`: its line in
 * the recording.
 */
export type RecordedStep = { readonly wait: number; readonly line: number } & (
  | {
      readonly kind: "notify";
      readonly message: Notification;
      readonly references: RequestReferences;
    }
  | { readonly kind: "request"; readonly message: Request }
  /** Wait for the client's response to the server's request that is recorded in line `requestLine`. */
  | { readonly kind: "awaitResponse"; readonly requestLine: number }
  | { readonly kind: "respond"; readonly response: Response }
  /** The response cannot be sent: it was not recorded, or never came. */
  | { readonly kind: "fail"; readonly reason: string }
  /** The server closed the connection. */
  | { readonly kind: "close"; readonly reason: string }
);

/** The byte ranges of the values that tie a notification to a request: the progress token and the subscription id. */
export interface RequestReferences {
  readonly progressToken: ByteRange | undefined;
  readonly subscriptionId: ByteRange | undefined;
}

/** One request to a server, and everything the server did for it. */
export interface RecordedExchange {
  readonly line: number;
  readonly method: string;
  /** The key of the request; see `formatRequestKey`. */
  readonly requestKey: string;
  readonly steps: readonly RecordedStep[];
}

/** The methods of the first request of a session, one for each era. */
const INITIALIZATION_METHODS: ReadonlySet<string> = new Set([
  Method.initialize,
  ModernMethod.discover,
]);

export function isInitialization(method: string): boolean {
  return INITIALIZATION_METHODS.has(method);
}

/** Requests that a hub sends by itself, not for a client: the replay ignores their order and params. */
const HUB_METHODS: ReadonlySet<string> = new Set([
  ...INITIALIZATION_METHODS,
  Method.ping,
  ModernMethod.listen,
]);

export function isHubRequest(method: string): boolean {
  return HUB_METHODS.has(method);
}

/** The key that identifies equal requests. */
export function requestKeyOf({ method, bytes, params }: Request): string {
  return isHubRequest(method) ? "" : formatRequestKey(bytes, params);
}

/** All requests to one server, in order. */
export function readExchanges(entries: readonly RecordedLine[]): readonly RecordedExchange[] {
  const builders: ExchangeBuilder[] = [];
  for (const entriesOfRun of Map.groupBy(entries, ({ run }) => run).values()) {
    const run = new RunReader();
    for (const entry of entriesOfRun) run.add(entry);
    run.finish();
    builders.push(...run.builders);
  }
  return builders
    .toSorted((a, b) => a.line - b.line)
    .map(({ line, request, steps }) => {
      return { line, method: request.method, requestKey: requestKeyOf(request), steps };
    });
}

type StepContent<K extends RecordedStep["kind"]> = Omit<
  Extract<RecordedStep, { kind: K }>,
  "wait" | "line"
>;
type AnyStepContent = { [K in RecordedStep["kind"]]: StepContent<K> }[RecordedStep["kind"]];

/** An exchange being built. */
class ExchangeBuilder {
  readonly line: number;
  readonly request: Request;
  readonly id: IdKey;
  readonly progressToken: string | undefined;
  readonly steps: RecordedStep[] = [];
  /** Line of the response, or of another event that ended the request. */
  end: number | undefined;
  isCancelled = false;
  #lastTime: number;

  constructor(request: Request, { line, t }: RecordedLine) {
    this.line = line;
    this.request = request;
    this.id = request.id.key;
    this.progressToken = progressTokenOf(request);
    this.#lastTime = t;
  }

  addStep(step: AnyStepContent, { line, t }: Pick<RecordedLine, "line" | "t">): void {
    const wait = Math.max(0, t - this.#lastTime);
    this.#lastTime = t;
    this.steps.push({ ...step, wait, line });
    if (step.kind === "respond" || step.kind === "fail" || step.kind === "close") this.end ??= line;
  }
}

type IdKey = string | number;

/** Reads the exchanges of one run of a server. */
class RunReader {
  readonly builders: ExchangeBuilder[] = [];
  readonly #open = new Map<IdKey, ExchangeBuilder>();
  /** Requests from the server that have no response yet, by id. */
  readonly #serverRequests = new Map<
    IdKey,
    { readonly line: number; readonly builder: ExchangeBuilder }
  >();
  #lastLine: RecordedLine | undefined;

  add(line: RecordedLine): void {
    this.#lastLine = line;
    switch (line.kind) {
      case "message":
        this.#message(line, line.message);
        return;
      case "placeholder":
        if (line.direction === "received") {
          this.#fail(line.placeholder.id, "its answer was too large to be recorded", line);
        }
        return;
      case "lost":
        this.#fail(line.id, line.cause, line);
        return;
      case "abandoned":
        this.#markCancelled(line.id, line);
        return;
      case "closed":
        this.#close(line);
        return;
    }
  }

  /**
   * Ends the requests that have no response by now: in a replay they fail, except cancelled requests and subscriptions,
   * which need no response.
   */
  finish(): void {
    const last = this.#lastLine;
    for (const builder of this.#open.values()) {
      if (
        builder.isCancelled ||
        last === undefined ||
        builder.request.method === ModernMethod.listen
      ) {
        continue;
      }
      builder.addStep({ kind: "fail", reason: "the recording ends before its answer" }, last);
    }
    this.#open.clear();
  }

  #message(entry: RecordedLine & { kind: "message" }, message: Message): void {
    if (message.kind === "batch") for (const item of message.items) this.#message(entry, item);
    else if (entry.direction === "sent") this.#sent(entry, message);
    else this.#received(entry, message);
  }

  #sent(entry: RecordedLine, message: Message): void {
    if (message.kind === "request") {
      const builder = new ExchangeBuilder(message, entry);
      this.builders.push(builder);
      this.#open.set(builder.id, builder);
    } else if (message.kind === "response") {
      const key = responseIdOf(message);
      const serverRequest = key === undefined ? undefined : this.#serverRequests.get(key);
      if (key === undefined || serverRequest === undefined) return;
      this.#serverRequests.delete(key);
      serverRequest.builder.addStep(
        { kind: "awaitResponse", requestLine: serverRequest.line },
        entry,
      );
    } else if (message.kind === "notification" && message.method === CANCELLED) {
      this.#markCancelled(cancelledRequestOf(message), entry);
    }
  }

  #received(entry: RecordedLine & { kind: "message" }, message: Message): void {
    if (message.kind === "response") {
      const key = message.id ?? responseIdOf(message);
      const builder = key === undefined ? undefined : this.#open.get(key);
      if (key === undefined || builder === undefined) return;
      this.#open.delete(key);
      builder.addStep({ kind: "respond", response: message }, entry);
    } else if (message.kind === "request") {
      const builder = this.#likelyRequest(entry.streamRequestId);
      if (builder === undefined) return;
      this.#serverRequests.set(message.id.key, { line: entry.line, builder });
      builder.addStep({ kind: "request", message }, entry);
    } else if (message.kind === "notification" && message.method !== CANCELLED) {
      const references = requestReferencesOf(message);
      const builder =
        this.#requestOfNotification(message, references) ??
        this.#likelyRequest(entry.streamRequestId);
      builder?.addStep({ kind: "notify", message, references }, entry);
    }
  }

  #requestOfNotification(
    { bytes }: Notification,
    { progressToken, subscriptionId }: RequestReferences,
  ): ExchangeBuilder | undefined {
    if (progressToken !== undefined) {
      const text = textOf(bytes, progressToken.start, progressToken.end);
      for (const builder of this.#open.values()) if (builder.progressToken === text) return builder;
    }
    const id = subscriptionId && readId(bytes, subscriptionId);
    return id && this.#open.get(id.key);
  }

  /**
   * The request that a server's message probably belongs to. Over stdio, a message does not name its request, so the
   * latest open request is assumed or, if none is open, the latest finished one.
   */
  #likelyRequest(streamRequestId: IdKey | undefined): ExchangeBuilder | undefined {
    const known =
      streamRequestId === undefined
        ? undefined
        : (this.#open.get(streamRequestId) ?? this.#open.get(`"${streamRequestId}`));
    if (known !== undefined) return known;
    const running = [...this.#open.values()].filter(
      ({ request }) => request.method !== ModernMethod.listen,
    );
    return running.at(-1) ?? this.builders.findLast(({ end }) => end !== undefined);
  }

  #fail(id: IdKey | undefined, reason: string, entry: RecordedLine): void {
    if (id === undefined) return;
    const key = this.#open.has(id) ? id : `"${id}`;
    const builder = this.#open.get(key);
    this.#open.delete(key);
    builder?.addStep({ kind: "fail", reason }, entry);
  }

  #markCancelled(key: IdKey | undefined, { line }: RecordedLine): void {
    const builder = key === undefined ? undefined : this.#open.get(key);
    if (builder === undefined) return;
    builder.isCancelled = true;
    builder.end ??= line;
  }

  #close(entry: RecordedLine & { kind: "closed" }): void {
    if (entry.by === "hub") return;
    const open = [...this.#open.values()];
    const last = open.at(-1) ?? this.builders.findLast(({ end }) => end !== undefined);
    // Only one exchange replays the end of the connection, which ends all other open requests as well.
    last?.addStep({ kind: "close", reason: entry.cause }, entry);
    for (const builder of open) builder.end ??= entry.line;
    this.#open.clear();
  }
}

const CANCELLED = "notifications/cancelled";

/** The id of a response, as a key that distinguishes strings from numbers; undefined if it has none. */
export function responseIdOf({ bytes, start }: Response): IdKey | undefined {
  const member = JsonObject.at(bytes, { start }).member("id");
  return member && readId(bytes, member)?.key;
}

/** The `requestId` of a cancellation. */
export function cancelledRequestOf(notification: Notification): IdKey | undefined {
  const member = paramsOf(notification).member("requestId");
  return member && readId(notification.bytes, member)?.key;
}

/** A request's progress token as JSON text. */
export function progressTokenOf(request: Request): string | undefined {
  const token = paramsOf(request).object("_meta").member("progressToken");
  return token && textOf(request.bytes, token.start, token.end);
}

function requestReferencesOf(notification: Notification): RequestReferences {
  const params = paramsOf(notification);
  return {
    progressToken: params.member("progressToken"),
    subscriptionId: params.object("_meta").member(MetaKey.subscription),
  };
}
