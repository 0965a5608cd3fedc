import type { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { lastMember, scanObject } from "../base/json.ts";
import {
  type Message,
  type Notification,
  readId,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import { isSecretName } from "../manifest/plaintext-secrets.ts";
import { Method } from "../protocol/legacy.ts";
import { MetaKey, ModernMethod } from "../protocol/modern.ts";
import { MASK } from "./mask.ts";
import { groupEntries, type RecordedLine } from "./reader.ts";

/** Maximum number of differences, and maximum length of a displayed value, in characters. */
const MOST = 50;
const SHOWN = 60;

/**
 * The key of a request: its params with sorted members and without `_meta`, which differs each time (progress
 * token). Equal for equal requests.
 */
export function formatRequestKey(bytes: Buffer, params: ByteRange | undefined): string {
  if (params === undefined) return "{}";
  const text = textOf(bytes, params.start, params.end);
  try {
    const { _meta, ...wish } = JSON.parse(text) as Record<string, unknown>;
    return JSON.stringify(wish, sortMembers);
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

/** A difference between two values: the path, such as `arguments.path[2]`, and both values. */
export interface ValueDifference {
  readonly path: string;
  readonly recorded: string;
  readonly asked: string;
}

/** Differences of a request key from a recorded one; empty if they match. Masked values match anything. */
export function compareRequestKeys(recorded: string, asked: string): readonly ValueDifference[] {
  return compareValues(parse(recorded), parse(asked));
}

/** The same for any two values. */
export function compareValues(recorded: unknown, asked: unknown): readonly ValueDifference[] {
  const found: ValueDifference[] = [];
  walk(recorded, asked, "", "", found);
  return found;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function walk(a: unknown, b: unknown, path: string, key: string, found: ValueDifference[]): void {
  if (found.length >= MOST || Object.is(a, b) || (typeof a === "string" && fits(a, b))) return;
  if (Array.isArray(a) && Array.isArray(b)) {
    const length = Math.max(a.length, b.length);
    for (let at = 0; at < length && found.length < MOST; at++) {
      walk(a[at], b[at], `${path}[${at}]`, key, found);
    }
    return;
  }
  if (isTable(a) && isTable(b)) {
    for (const name of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const below = path === "" ? name : `${path}.${name}`;
      walk(own(a, name), own(b, name), below, name, found);
    }
    return;
  }
  const isSecret = isSecretName(key);
  const asked = isSecret && b !== undefined ? "[not shown]" : show(b);
  found.push({ path: path === "" ? "all" : path, recorded: show(a), asked });
}

function own(table: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** Whether a text matches a recorded one; the mask matches anything. */
function fits(recorded: string, asked: unknown): boolean {
  if (!recorded.includes(MASK)) return recorded === asked;
  // A masked number is recorded as a string.
  if (recorded === MASK) return typeof asked === "string" || typeof asked === "number";
  if (typeof asked !== "string") return false;
  const parts = recorded.split(MASK);
  const last = parts.pop() ?? "";
  let at = 0;
  for (const [index, part] of parts.entries()) {
    const next = index === 0 ? (asked.startsWith(part) ? 0 : -1) : asked.indexOf(part, at);
    if (next < 0) return false;
    at = next + part.length;
  }
  return asked.length - last.length >= at && asked.endsWith(last);
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = JSON.stringify(value);
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`;
}

/** One step of a server, `wait` ms after the previous step or the request. */
export type RecordedStep = { readonly wait: number; readonly line: number } & (
  | { readonly kind: "say"; readonly frame: Notification; readonly marks: RecordedMarks }
  | { readonly kind: "ask"; readonly frame: Request }
  /** Wait for the client's response to the server's request on that line. */
  | { readonly kind: "hear"; readonly question: number; readonly answer: Response }
  | { readonly kind: "answer"; readonly response: Response }
  /** There is no response to send: it was not recorded, or never came. */
  | { readonly kind: "fail"; readonly why: string }
  /** The server closed the connection. */
  | { readonly kind: "die"; readonly why: string }
);

/** Byte ranges in a notification of the progress token and the subscription id that tie it to a request. */
export interface RecordedMarks {
  readonly token: ByteRange | undefined;
  readonly subscription: ByteRange | undefined;
}

/** One request to a server, and everything the server did for it. */
export interface RecordedExchange {
  readonly line: number;
  readonly method: string;
  /** Its request key; see `formatRequestKey`. */
  readonly wish: string;
  readonly steps: readonly RecordedStep[];
  /** Line of the response, or of another end; Infinity if neither is recorded. */
  readonly end: number;
}

/** The first request of a session, one method for each era. */
const GREETINGS: ReadonlySet<string> = new Set([Method.initialize, ModernMethod.discover]);

export function isInitialization(method: string): boolean {
  return GREETINGS.has(method);
}

/** Requests that a hub sends on its own: their order is irrelevant, and so are their params. */
const HOUSEKEEPING: ReadonlySet<string> = new Set([...GREETINGS, Method.ping, ModernMethod.listen]);

export function isPingOrDiscovery(method: string): boolean {
  return HOUSEKEEPING.has(method);
}

/** The key that identifies equal requests. */
export function requestKeyOf({ method, bytes, params }: Request): string {
  return isPingOrDiscovery(method) ? "" : formatRequestKey(bytes, params);
}

/** All requests to one server, in order. */
export function readExchanges(entries: readonly RecordedLine[]): readonly RecordedExchange[] {
  const drafts: Draft[] = [];
  for (const entriesOfRun of groupEntries(entries, ({ run }) => run).values()) {
    const run = new Run();
    for (const entry of entriesOfRun) run.take(entry);
    run.end();
    drafts.push(...run.drafts);
  }
  return drafts
    .toSorted((a, b) => a.line - b.line)
    .map(({ line, request, steps, end }) => {
      const { method } = request;
      return { line, method, wish: requestKeyOf(request), steps, end: end ?? Infinity };
    });
}

type StepOf<K extends RecordedStep["kind"]> = Omit<
  Extract<RecordedStep, { kind: K }>,
  "wait" | "line"
>;
type Deed = { [K in RecordedStep["kind"]]: StepOf<K> }[RecordedStep["kind"]];

/** An exchange being built. */
class Draft {
  readonly line: number;
  readonly request: Request;
  readonly id: Key;
  readonly token: string | undefined;
  readonly steps: RecordedStep[] = [];
  end: number | undefined;
  isCancelled = false;
  #t: number;

  constructor(request: Request, { line, t }: RecordedLine) {
    this.line = line;
    this.request = request;
    this.id = request.id.key;
    this.token = progressTokenOf(request);
    this.#t = t;
  }

  add(deed: Deed, { line, t }: Pick<RecordedLine, "line" | "t">): void {
    const wait = Math.max(0, t - this.#t);
    this.#t = t;
    this.steps.push({ ...deed, wait, line });
    if (deed.kind === "answer" || deed.kind === "fail" || deed.kind === "die") this.end ??= line;
  }
}

type Key = string | number;

/** One run of a server. */
class Run {
  readonly drafts: Draft[] = [];
  readonly #open = new Map<Key, Draft>();
  /** Requests of the server without a response so far, by id. */
  readonly #questions = new Map<Key, { readonly line: number; readonly draft: Draft }>();
  #last: RecordedLine | undefined;

  take(entry: RecordedLine): void {
    this.#last = entry;
    switch (entry.kind) {
      case "message":
        this.#message(entry, entry.frame);
        return;
      case "stub":
        if (entry.way === "received") {
          this.#fail(entry.stub.id, "its answer was too large to be recorded", entry);
        }
        return;
      case "lost":
        this.#fail(entry.id, entry.cause, entry);
        return;
      case "abandoned":
        this.#giveUp(entry.id, entry);
        return;
      case "closed":
        this.#close(entry);
        return;
    }
  }

  /** A request without a response by now never gets one; for a cancelled one, none is expected. */
  end(): void {
    const last = this.#last;
    for (const draft of this.#open.values()) {
      if (draft.isCancelled || last === undefined || draft.request.method === ModernMethod.listen) {
        continue;
      }
      draft.add({ kind: "fail", why: "the recording ends before its answer" }, last);
    }
    this.#open.clear();
  }

  #message(entry: RecordedLine & { kind: "message" }, frame: Message): void {
    if (frame.kind === "batch") for (const item of frame.items) this.#message(entry, item);
    else if (entry.way === "sent") this.#sent(entry, frame);
    else this.#received(entry, frame);
  }

  #sent(entry: RecordedLine, frame: Message): void {
    if (frame.kind === "request") {
      const draft = new Draft(frame, entry);
      this.drafts.push(draft);
      this.#open.set(draft.id, draft);
    } else if (frame.kind === "response") {
      const key = responseIdOf(frame);
      const question = key === undefined ? undefined : this.#questions.get(key);
      if (key === undefined || question === undefined) return;
      this.#questions.delete(key);
      question.draft.add({ kind: "hear", question: question.line, answer: frame }, entry);
    } else if (frame.kind === "notification" && frame.method === CANCELLED) {
      this.#giveUp(cancelledRequestOf(frame), entry);
    }
  }

  #received(entry: RecordedLine & { kind: "message" }, frame: Message): void {
    if (frame.kind === "response") {
      const key = frame.id ?? responseIdOf(frame);
      const draft = key === undefined ? undefined : this.#open.get(key);
      if (key === undefined || draft === undefined) return;
      this.#open.delete(key);
      draft.add({ kind: "answer", response: frame }, entry);
    } else if (frame.kind === "request") {
      const draft = this.#ownerOf(entry.on);
      if (draft === undefined) return;
      this.#questions.set(frame.id.key, { line: entry.line, draft });
      draft.add({ kind: "ask", frame }, entry);
    } else if (frame.kind === "notification" && frame.method !== CANCELLED) {
      const marks = marksIn(frame);
      const draft = this.#listenerOf(frame, marks) ?? this.#ownerOf(entry.on);
      draft?.add({ kind: "say", frame, marks }, entry);
    }
  }

  #listenerOf({ bytes }: Notification, { token, subscription }: RecordedMarks): Draft | undefined {
    if (token !== undefined) {
      const text = textOf(bytes, token.start, token.end);
      for (const draft of this.#open.values()) if (draft.token === text) return draft;
    }
    const id = subscription && readId(bytes, subscription);
    return id && this.#open.get(id.key);
  }

  /**
   * Over stdio a message does not show its request: assume the latest open request, or else the latest
   * finished one.
   */
  #ownerOf(on: Key | undefined): Draft | undefined {
    const known = on === undefined ? undefined : (this.#open.get(on) ?? this.#open.get(`"${on}`));
    if (known !== undefined) return known;
    const running = [...this.#open.values()].filter(
      ({ request }) => request.method !== ModernMethod.listen,
    );
    return running.at(-1) ?? this.drafts.findLast(({ end }) => end !== undefined);
  }

  #fail(id: Key | undefined, why: string, entry: RecordedLine): void {
    if (id === undefined) return;
    const key = this.#open.has(id) ? id : `"${id}`;
    const draft = this.#open.get(key);
    this.#open.delete(key);
    draft?.add({ kind: "fail", why }, entry);
  }

  #giveUp(key: Key | undefined, { line }: RecordedLine): void {
    const draft = key === undefined ? undefined : this.#open.get(key);
    if (draft === undefined) return;
    draft.isCancelled = true;
    draft.end ??= line;
  }

  #close(entry: RecordedLine & { kind: "closed" }): void {
    if (entry.by === "hub") return;
    const open = [...this.#open.values()];
    const last = open.at(-1) ?? this.drafts.findLast(({ end }) => end !== undefined);
    // A lost connection ends all other requests as well.
    last?.add({ kind: "die", why: entry.cause }, entry);
    for (const draft of open) draft.end ??= entry.line;
    this.#open.clear();
  }
}

const CANCELLED = "notifications/cancelled";

/** The id of a response, of any type. */
export function responseIdOf({ bytes, start }: Response): Key | undefined {
  const member = lastMember(scanObject(bytes, start)?.items ?? [], "id");
  return member && readId(bytes, member)?.key;
}

/** The `requestId` of a cancellation. */
export function cancelledRequestOf({ bytes, params }: Notification): Key | undefined {
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const member = lastMember(members, "requestId");
  return member && readId(bytes, member)?.key;
}

/** A request's progress token as JSON text. */
export function progressTokenOf({ bytes, params, members }: Request): string | undefined {
  const all = members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
  const meta = lastMember(all, "_meta");
  const token = meta && lastMember(scanObject(bytes, meta.start)?.items ?? [], "progressToken");
  return token && textOf(bytes, token.start, token.end);
}

function marksIn({ bytes, params }: Notification): RecordedMarks {
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const meta = lastMember(members, "_meta");
  const inner = (meta && scanObject(bytes, meta.start)?.items) ?? [];
  return {
    token: lastMember(members, "progressToken"),
    subscription: lastMember(inner, MetaKey.subscription),
  };
}
