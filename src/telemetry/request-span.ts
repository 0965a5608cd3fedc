import type { ByteRange, Edit } from "../base/bytes.ts";
import { indexWithin, textOf, utf8 } from "../base/bytes.ts";
import { JsonObject } from "../base/json.ts";
import { paramsOf, type Request } from "../jsonrpc/message.ts";
import type { Attributes, EndedSpan, Span } from "./span.ts";
import {
  formatTraceparent,
  MAX_TRACE_STATE,
  newSpanId,
  parseTraceparent,
  type RemoteContext,
  type SpanContext,
} from "./trace-context.ts";
import {
  attemptAttributes,
  type AttemptTarget,
  attributesOf,
  failureAttributes,
  networkAttributes,
  optional,
  type PeerNetwork,
  PING,
  type RequestFailure,
  shownName,
  TARGETS,
  TOOL_CALL,
} from "./request-attributes.ts";
import {
  keptText,
  MAX_ERROR_TEXT,
  MAX_SEARCHED,
  MAX_VALUE,
  redactAttributes,
  type TracePosition,
  type Tracer,
} from "./tracer.ts";

/** Who knows from where a client's requests come. */
export interface RequestSource {
  /** Called only for a request that is recorded. @param http what came with the request over HTTP */
  originOf(request: Request, http: HttpOrigin | undefined): RequestOrigin;
}

/** What is known of a client's request besides its message. */
export interface RequestOrigin {
  readonly network: PeerNetwork;
  /** The protocol version of the client; undefined before it is negotiated. */
  readonly protocolVersion: string | undefined;
  /** A digest of the id of the client's session over HTTP. */
  readonly sessionId: string | undefined;
  /** The client's name in the manifest, or its id. */
  readonly client: string | undefined;
  /** What an HTTP request had besides its body. */
  readonly http: HttpOrigin | undefined;
}

/** The parts of an HTTP request that its span has. */
export interface HttpOrigin {
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  readonly address: string | undefined;
}

/** The reasons for which a call waits. */
export type WaitReason = "queue" | "approval" | "client" | "start";

/** Maximum size of the arguments or the result of a tool that a span has, in bytes of UTF-8. */
const MAX_CONTENT = 4096;

const TRACEPARENT_BYTES = utf8("traceparent");
const BACKSLASH_BYTES = utf8("\\");

/**
 * Whether a request may name a parent in its `_meta`. Looking for the bytes of the key takes less time than reading the
 * object, and few clients name one. A key with escapes may be it, too.
 */
function mayNameParent({ bytes, params, members }: Request): boolean {
  if (params === undefined) return false;
  if (members === undefined) return isNamedWithin(bytes, params);
  for (const member of members)
    if (member.key === "_meta" && isNamedWithin(bytes, member)) return true;
  return false;
}

function isNamedWithin(bytes: Uint8Array, { start, end }: ByteRange): boolean {
  return (
    indexWithin(bytes, TRACEPARENT_BYTES, start, end) !== -1 ||
    indexWithin(bytes, BACKSLASH_BYTES, start, end) !== -1
  );
}

/** The parent that a request names in its `_meta` (SEP-414). */
function parentOf(params: JsonObject): RemoteContext | undefined {
  if (params.member("_meta") === undefined) return undefined;
  const meta = params.everyObject("_meta");
  const context = parseTraceparent(meta.string("traceparent"));
  if (context === undefined) return undefined;
  return { ...context, traceState: limitState(meta.string("tracestate")) };
}

function limitState(text: string | undefined): string | undefined {
  return text === undefined || text.length > MAX_TRACE_STATE ? undefined : text;
}

/**
 * Begins the span of a client's request.
 * @param http what came with the request over HTTP
 * @returns undefined if the request has none
 */
export function startRequestSpan(
  tracer: Tracer,
  request: Request,
  http: HttpOrigin | undefined,
  source: RequestSource,
): RequestSpan | undefined {
  if (request.method === PING) return undefined;
  const mayHaveParent = http !== undefined || mayNameParent(request);
  // Most requests have no parent and are not recorded: nothing is made for them.
  if (!mayHaveParent && !tracer.samplesNew()) return undefined;
  const params = paramsOf(request);
  const own = mayHaveParent ? parentOf(params) : undefined;
  const header = parseTraceparent(http?.traceparent);
  const parent = own ?? (header && { ...header, traceState: limitState(http?.tracestate) });
  const position = mayHaveParent ? tracer.position(parent) : tracer.newPosition();
  if (position === undefined) return undefined;
  return new RequestSpan(tracer, position, request, params, source.originOf(request, http), {
    link: own === undefined ? undefined : header,
    isStateOfHeader: own === undefined && header !== undefined,
  });
}

const INSIDE: RequestOrigin = {
  network: { transport: undefined },
  protocolVersion: undefined,
  sessionId: undefined,
  client: undefined,
  http: undefined,
};

/**
 * Begins the span of a call that a plugin makes as a part of a client's call: below the span that the call names in its
 * `_meta`, else below that of the client's call.
 * @param outer the span of the client's call
 */
export function startInnerSpan(
  tracer: Tracer,
  request: Request,
  outer: RequestSpan | undefined,
): RequestSpan | undefined {
  const params = paramsOf(request);
  const parent = parentOf(params) ?? outer;
  const position = parent && tracer.position(parent);
  if (position === undefined) return undefined;
  const inside = { ...position, isParentRemote: false };
  return new RequestSpan(tracer, inside, request, params, INSIDE, {
    link: undefined,
    isStateOfHeader: false,
    isInner: true,
  });
}

const NO_LINKS: readonly SpanContext[] = [];

/** A request of a client, from its arrival until its answer. */
export class RequestSpan implements EndedSpan, SpanContext {
  readonly spanId = newSpanId();
  readonly isSampled = true;
  readonly tracer: Tracer;
  readonly method: string;
  readonly #position: TracePosition;
  readonly #origin: RequestOrigin;
  #links: readonly SpanContext[];
  /** Whether the state of the trace came in an HTTP header, so that servers do not get it in `_meta` yet. */
  readonly #isStateOfHeader: boolean;
  /** Whether the hub itself makes the call, as a part of a client's. */
  readonly #isInner: boolean;
  readonly #id: string;
  readonly #target: string | undefined;
  readonly #startedAt: number;
  readonly #arguments: string | undefined;
  #result: string | undefined;
  #endedAt: number | undefined;
  #hasOutcome = false;
  #failure: RequestFailure | undefined;
  #server: string | undefined;
  #waits: Partial<Record<WaitReason, number>> | undefined;

  constructor(
    tracer: Tracer,
    position: TracePosition,
    request: Request,
    params: JsonObject,
    origin: RequestOrigin,
    {
      link,
      isStateOfHeader,
      isInner = false,
    }: {
      readonly link: SpanContext | undefined;
      readonly isStateOfHeader: boolean;
      readonly isInner?: boolean;
    },
  ) {
    const { method, id } = request;
    const target = TARGETS[method];
    this.tracer = tracer;
    this.method = keptText(tracer, method, MAX_VALUE);
    this.#position = position;
    this.#origin = origin;
    this.#links = link === undefined ? NO_LINKS : [link];
    this.#isStateOfHeader = isStateOfHeader;
    this.#isInner = isInner;
    this.#id = keptText(tracer, textOfId(textOf(id.bytes, id.start, id.end)), MAX_VALUE);
    const name = target && params.string(target.key);
    this.#target = name && keptText(tracer, name, MAX_VALUE);
    this.#startedAt = tracer.now();
    const given = tracer.settings.keepsContent && method === TOOL_CALL;
    this.#arguments = given
      ? contentOf(tracer, params.bytes, params.member("arguments"))
      : undefined;
  }

  get traceId(): string {
    return this.#position.traceId;
  }

  /** Whether the client has named a parent. */
  get hasParent(): boolean {
    return this.#position.parentSpanId !== undefined;
  }

  get traceState(): string | undefined {
    return this.#position.traceState;
  }

  /** The state of the trace that servers get in `_meta`; undefined: it is there already, or there is none. */
  get addedState(): string | undefined {
    return this.#isStateOfHeader ? this.#position.traceState : undefined;
  }

  get contentSize(): number {
    return (this.#arguments?.length ?? 0) + (this.#result?.length ?? 0);
  }

  get isOver(): boolean {
    return this.#endedAt !== undefined;
  }

  /** Names the span of an earlier request, with which this one goes on. */
  continue(earlier: SpanContext): void {
    const { traceId, spanId, isSampled } = earlier;
    this.#links = [...this.#links, { traceId, spanId, isSampled }];
  }

  /** The server at which the request was handled. */
  setServer(server: string): void {
    this.#server = server;
  }

  /** Says for how long the request has waited for a reason. @param ms is added to what was said before */
  addWait(reason: WaitReason, ms: number): void {
    if (ms <= 0) return;
    this.#waits ??= {};
    this.#waits[reason] = (this.#waits[reason] ?? 0) + ms;
  }

  waited(reason: WaitReason): number {
    return this.#waits?.[reason] ?? 0;
  }

  /** Says how the request has ended; only the first call counts. @param failure undefined: without an error */
  setOutcome(failure: RequestFailure | undefined): void {
    if (this.hasOutcome || this.isOver) return;
    this.#hasOutcome = true;
    this.#failure = failure && keptFailure(this.tracer, failure);
  }

  get hasOutcome(): boolean {
    return this.#hasOutcome;
  }

  get isToolCall(): boolean {
    return this.method === TOOL_CALL;
  }

  /** Whether the span is to have the result. */
  get wantsResult(): boolean {
    return this.isToolCall && this.tracer.settings.keepsContent;
  }

  /** Sets the result of a tool. @param range the result in the bytes */
  setResult(bytes: Uint8Array, range: ByteRange): void {
    if (this.wantsResult) this.#result = contentOf(this.tracer, bytes, range);
  }

  end(): void {
    if (this.isOver) return;
    this.#endedAt = this.tracer.now();
    this.tracer.record(this);
  }

  toSpan(): Span {
    const { tracer, method } = this;
    const { network, protocolVersion, sessionId, client, http } = this.#origin;
    const redact = (text: string): string => tracer.redact(text);
    const attributes: Attributes = {
      ...attributesOf(method, this.#target),
      ...(!this.#isInner && { "jsonrpc.request.id": this.#id }),
      ...optional("mcp.protocol.version", protocolVersion),
      ...optional("mcp.session.id", sessionId),
      ...networkAttributes(network),
      ...optional("client.address", http?.address),
      ...optional("toolmux.server", this.#server),
      ...optional("toolmux.client", client),
      ...failureAttributes(this.#failure),
    };
    for (const [reason, ms] of Object.entries(this.#waits ?? {}))
      attributes[`toolmux.waited_ms.${reason}`] = Math.round(ms * 1000) / 1000;
    return {
      traceId: this.traceId,
      spanId: this.spanId,
      parentSpanId: this.#position.parentSpanId,
      isParentRemote: this.#position.isParentRemote,
      traceState: this.traceState,
      name: shownName(method, this.#target, redact),
      kind: this.#isInner ? "internal" : "server",
      startedAt: this.#startedAt,
      endedAt: this.#endedAt ?? this.#startedAt,
      attributes: {
        ...redactAttributes(attributes, redact),
        // They were redacted when they were kept.
        ...optional("gen_ai.tool.call.arguments", this.#arguments),
        ...optional("gen_ai.tool.call.result", this.#result),
      },
      links: this.#links,
      error: this.#failure && redact(this.#failure.message),
    };
  }
}

/** A request that the hub has sent to a server, from the sending until the answer. */
export class AttemptSpan implements EndedSpan, SpanContext {
  readonly traceId: string;
  readonly spanId = newSpanId();
  readonly isSampled = true;
  readonly contentSize = 0;
  readonly #parent: RequestSpan;
  readonly #target: AttemptTarget;
  readonly #startedAt: number;
  /** The id of the request at the server. */
  id = 0;
  #endedAt: number | undefined;
  #failure: RequestFailure | undefined;

  constructor(parent: RequestSpan, target: AttemptTarget) {
    this.#parent = parent;
    const { name } = target;
    const isLong = name !== undefined && name.length > MAX_VALUE;
    this.#target = isLong ? { ...target, name: keptText(parent.tracer, name, MAX_VALUE) } : target;
    this.traceId = parent.traceId;
    this.#startedAt = parent.tracer.now();
  }

  /** The `traceparent` that the server gets; undefined: what the client has sent passes as it is. */
  get sentContext(): SentContext | undefined {
    const { propagate } = this.#parent.tracer.settings;
    const isSent = propagate === "always" || (propagate === "parent" && this.#parent.hasParent);
    if (!isSent) return undefined;
    return { traceparent: formatTraceparent(this), tracestate: this.#parent.addedState };
  }

  end(failure?: RequestFailure): void {
    if (this.#endedAt !== undefined) return;
    this.#endedAt = this.#parent.tracer.now();
    this.#failure = failure && keptFailure(this.#parent.tracer, failure);
    this.#parent.tracer.record(this);
  }

  toSpan(): Span {
    const { method, name } = this.#target;
    const { tracer, traceState } = this.#parent;
    const redact = (text: string): string => tracer.redact(text);
    const attributes = attemptAttributes(this.#target, this.id, this.#failure);
    return {
      traceId: this.traceId,
      spanId: this.spanId,
      parentSpanId: this.#parent.spanId,
      isParentRemote: false,
      traceState,
      name: shownName(method, name, redact),
      kind: "client",
      startedAt: this.#startedAt,
      endedAt: this.#endedAt ?? this.#startedAt,
      attributes: redactAttributes(attributes, redact),
      links: [],
      error: this.#failure && redact(this.#failure.message),
    };
  }
}

/** The trace context that a server gets in `_meta`. */
export interface SentContext {
  readonly traceparent: string;
  /** Undefined: the one in the request is left as it is. */
  readonly tracestate: string | undefined;
}

/**
 * Edits that write a trace context into the `_meta` of a request's params (SEP-414). All occurrences are replaced,
 * because some parsers read the first of equal keys. A request whose params are no object gets none.
 */
export function contextEdits(request: Request, { traceparent, tracestate }: SentContext): Edit[] {
  const members = { traceparent, ...(tracestate !== undefined && { tracestate }) };
  const { bytes, params } = request;
  if (params === undefined) {
    const at = request.end - 1;
    return [insertion(at, `,"params":{"_meta":${JSON.stringify(members)}}`)];
  }
  if (bytes[params.start] !== OPEN_BRACE) return [];
  const object = paramsOf(request);
  const metas = object.all("_meta");
  const usable = metas.filter(({ start }) => bytes[start] === OPEN_BRACE);
  if (metas.length === 0) {
    const isEmpty = object.members.length === 0;
    const meta = `"_meta":${JSON.stringify(members)}`;
    return [insertion(params.end - 1, isEmpty ? meta : `,${meta}`)];
  }
  return usable.flatMap((range) => {
    const meta = JsonObject.at(bytes, range);
    const edits: Edit[] = [];
    let added = "";
    for (const [key, value] of Object.entries(members)) {
      const known = meta.all(key);
      for (const { start, end } of known)
        edits.push({ start, end, replacement: utf8(JSON.stringify(value)) });
      if (known.length === 0) added += `,${JSON.stringify(key)}:${JSON.stringify(value)}`;
    }
    if (added !== "")
      edits.push(insertion(range.end - 1, meta.members.length === 0 ? added.slice(1) : added));
    return edits;
  });
}
const OPEN_BRACE = 0x7b;

function insertion(at: number, text: string): Edit {
  return { start: at, end: at, replacement: utf8(text) };
}

/** A request id as text, without the quotes of a string. */
function textOfId(json: string): string {
  if (!json.startsWith('"')) return json;
  try {
    return String(JSON.parse(json));
  } catch {
    return json;
  }
}

const encoder = new TextEncoder();

/** The start of a text that has at most so many bytes in UTF-8, as well-formed Unicode. */
function startOf(text: string, bytes: number): string {
  const start = new Uint8Array(bytes);
  // Encodes whole characters only, as far as there is room.
  const { written } = encoder.encodeInto(text.slice(0, bytes).toWellFormed(), start);
  return textOf(start, 0, written);
}

function keptFailure(tracer: Tracer, failure: RequestFailure): RequestFailure {
  const { message } = failure;
  if (message.length <= MAX_ERROR_TEXT) return failure;
  return { ...failure, message: keptText(tracer, message, MAX_ERROR_TEXT) };
}

/** A value as JSON without secrets, as far as a span has it; undefined if there is none. */
function contentOf(
  tracer: Tracer,
  bytes: Uint8Array,
  range: ByteRange | undefined,
): string | undefined {
  if (range === undefined) return undefined;
  const size = range.end - range.start;
  if (size > MAX_SEARCHED) return `[${size} bytes]`;
  return startOf(tracer.redact(textOf(bytes, range.start, range.end)), MAX_CONTENT);
}
