import { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { ERROR_META_KEY, readPeerError, toHubError } from "../base/errors.ts";
import { formatSize } from "../base/format.ts";
import { JsonObject, parseRange, scanArray } from "../base/json.ts";
import { type AgentCaller, AGENT_META_KEY } from "../approval/policy.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type { CallProgress, HubClient } from "../frontend/hub-client.ts";
import { isTable } from "../manifest/table.ts";
import { NO_ERROR_MESSAGE } from "../jsonrpc/parse.ts";
import type { Host, ToolCall } from "../plugin/plugin.ts";
import { callStateOf } from "../plugin/handler-chain.ts";
import type { OuterWork } from "../telemetry/agent-spans.ts";
import { AgentChain } from "./run-chain.ts";
import {
  BUDGET_META_KEY,
  type ReportedRun,
  readCost,
  type RunBudget,
  USAGE_META_KEY,
} from "./agent-calls.ts";
import type { ModelContent } from "./model.ts";

/** The name of the server whose tools are agents. */
export const AGENTS_SERVER = "agents";

/** A tool of the hub, as agents see it. */
export interface AgentTool {
  /** The exposed name, by which models call it. */
  readonly name: string;
  /** The server's name in the manifest. */
  readonly server: string;
  /** The server's own name of the tool. */
  readonly remoteName: string;
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly isReadOnly: boolean;
  readonly isIdempotent: boolean;
  /** The definition as the hub lists it, as JSON; its name may be another one. Undefined: it has nothing else. */
  readonly definition?: Uint8Array;
}

/** The complete result of a call, for a model. */
export interface ToolResult {
  readonly content: readonly ModelContent[];
  readonly isError: boolean;
  /** The code of the hub's own error; undefined if the tool has answered, even with an error. */
  readonly code: string | undefined;
  /** Size of the whole result, in bytes. */
  readonly size: number;
  /** What the result tells about the run of an agent that was called; undefined: the tool has run no agent. */
  readonly report?: ReportedRun;
}

export interface ToolCallOptions {
  /** Aborting it cancels the call at its server. */
  readonly signal: AbortSignal;
  readonly onProgress?: ((progress: CallProgress) => void) | undefined;
  /** The chain of agent runs of which the call is a part. */
  readonly chain: AgentChain;
  /** The agent that makes the call; approval rules depend on it. */
  readonly agent: AgentCaller;
  /** Whether the text of the result says all that the model needs, so that structured content is left out. */
  readonly textOnly?: boolean;
  /** What the run of the agent that is called may use; only for tools that run agents. */
  readonly budget?: RunBudget;
  /** Names the span of the run, below which that of the call is; undefined: it is not recorded. */
  readonly traceparent?: string | undefined;
}

/** The `_meta` of a call that an agent makes. */
function metaOf({
  chain,
  budget,
  traceparent,
}: ToolCallOptions): Readonly<Record<string, unknown>> {
  return {
    ...chain.meta,
    ...(budget !== undefined && { [BUDGET_META_KEY]: budget }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

/** The tools of a hub, and how agents call them. */
export interface Toolbox {
  /** The call of which runs with this toolbox are a part; absent: there is none. */
  readonly outer?: () => OuterWork;
  /** All tools of the hub, sorted by name. */
  tools(signal: AbortSignal): Promise<readonly AgentTool[]>;
  /**
   * Calls a tool. Errors of the hub are results, too.
   * @param name the exposed name
   * @param args the JSON text of an object
   * @throws the signal's reason
   */
  call(name: string, args: string, options: ToolCallOptions): Promise<ToolResult>;
}

/** The server and the tool for which an exposed name stands. */
export interface ToolOrigin {
  readonly server: string;
  /** The server's own name of the tool. */
  readonly tool: string;
}

interface ReadTool {
  readonly bytes: Uint8Array;
  readonly tool: AgentTool;
}

/**
 * Parses the tools of a listing. The parsed tools are cached: a tool that has the same bytes and origin as in the
 * previous listing is not parsed again.
 */
class ToolReader {
  #known = new Map<string, ReadTool>();

  /** @param items the listed tools; those without an origin are left out */
  read(
    items: readonly { readonly name: string; readonly bytes: Uint8Array }[],
    originOf: (name: string) => ToolOrigin | undefined,
  ): readonly AgentTool[] {
    const next = new Map<string, ReadTool>();
    for (const { name, bytes } of items) {
      const origin = originOf(name);
      if (origin === undefined) continue;
      const { server, tool: remoteName } = origin;
      const known = this.#known.get(name);
      const isSame =
        known?.tool.server === server &&
        known.tool.remoteName === remoteName &&
        Buffer.compare(known.bytes, bytes) === 0;
      const entry = isSame ? known : { bytes, tool: parseTool(name, origin, bytes) };
      next.set(name, entry);
    }
    this.#known = next;
    return [...next.values()]
      .map(({ tool }) => tool)
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }
}

function parseTool(
  name: string,
  { server, tool: remoteName }: ToolOrigin,
  bytes: Uint8Array,
): AgentTool {
  const definition = JSON.parse(textOf(bytes)) as Readonly<Record<string, unknown>>;
  const { description, inputSchema, annotations } = definition;
  const hints = isTable(annotations) ? annotations : {};
  return {
    name,
    server,
    remoteName,
    description: typeof description === "string" ? description : "",
    inputSchema: isTable(inputSchema) ? inputSchema : { type: "object" },
    isReadOnly: hints["readOnlyHint"] === true,
    isIdempotent: hints["idempotentHint"] === true,
    definition: bytes,
  };
}

/** The tools of a hub over an MCP connection, to a hub in this process or to another one. */
export class McpToolbox implements Toolbox {
  readonly #client: HubClient;
  readonly #origins: (signal: AbortSignal) => Promise<ReadonlyMap<string, ToolOrigin>>;
  readonly #reader = new ToolReader();

  /** @param origins returns the servers and tools for which the hub's exposed names stand */
  constructor(
    client: HubClient,
    origins: (signal: AbortSignal) => Promise<ReadonlyMap<string, ToolOrigin>>,
  ) {
    this.#client = client;
    this.#origins = origins;
  }

  async tools(signal: AbortSignal): Promise<readonly AgentTool[]> {
    const items = await this.#client.listTools(signal);
    const origins = await this.#origins(signal);
    const listed = items.map(({ key, bytes }) => ({ name: key, bytes }));
    return this.#reader.read(listed, (name) => origins.get(name));
  }

  async call(name: string, args: string, options: ToolCallOptions): Promise<ToolResult> {
    const { signal, onProgress, agent, textOnly } = options;
    const meta = { ...metaOf(options), [AGENT_META_KEY]: agent };
    try {
      const response = await this.#client.callTool(name, args, onProgress, signal, meta);
      const { bytes, body } = response;
      return response.outcome === "error"
        ? readError(parseRange(bytes, body), body.end - body.start)
        : readResult(bytes, body, textOnly);
    } catch (error) {
      return failure(error, signal);
    }
  }
}

/** All tools of a catalog. */
export function readCatalog({ tools }: Catalog, reader = new ToolReader()): readonly AgentTool[] {
  const { entries } = tools;
  const origins = new Map(
    entries.map(({ name, server, remoteName: tool }) => [name, { server, tool }]),
  );
  return reader.read(entries, (name) => origins.get(name));
}

/** The tools of a run that is a part of a client's call. */
export interface CallToolbox extends Toolbox {
  /** Whether the client's modes showed the tool to the client when `tools` was last called. */
  isVisible(tool: AgentTool): boolean;
  /** Calls the listener when the call's time limit is paused or continues; see `RunOptions.watchPauses`. */
  watchPauses(listener: (isPaused: boolean) => void): () => void;
}

/** The tools of the hub that the agent runs in. */
export class HubTools {
  readonly #host: Pick<Host, "call">;
  readonly #reader = new ToolReader();
  /** The chains of the calls that agents make. The key is the `AgentCaller` object that was passed with the call. */
  readonly #chains = new WeakMap<AgentCaller, AgentChain>();

  /** @param host the host of the plugin that runs agents */
  constructor(host: Pick<Host, "call">) {
    this.#host = host;
  }

  /** The chain of agent runs that a call is a part of. The chain may include runs in other hubs. */
  chainOf({ agent, meta }: ToolCall): AgentChain {
    return (agent && this.#chains.get(agent)) ?? AgentChain.fromMeta(meta);
  }

  /**
   * The toolbox of a run that is a part of a client's call. The run's own calls end when the client's call ends; their
   * questions and requests for approval are handled as those of the client's call.
   */
  for(outer: ToolCall): CallToolbox {
    let shown: ReadonlySet<string> = new Set();
    return {
      outer: () => callStateOf(outer),
      tools: async () => {
        const catalogs = await callStateOf(outer).catalogs();
        shown = new Set(catalogs.shown.tools.routes.map(keyOf));
        return this.#list(catalogs.all).filter(({ server }) => catalogs.allows(server));
      },
      call: (name, args, options) => this.#call(outer, name, args, options),
      isVisible: (tool) => shown.has(keyOf(tool)),
      watchPauses: (listener) => callStateOf(outer).watchPauses(listener),
    };
  }

  #list(all: Catalog): readonly AgentTool[] {
    return readCatalog(all, this.#reader);
  }

  async #call(
    outer: ToolCall,
    name: string,
    args: string,
    given: ToolCallOptions,
  ): Promise<ToolResult> {
    const { signal, onProgress, chain, agent, textOnly } = given;
    try {
      this.#chains.set(agent, chain);
      const options = { for: outer, signal, agent, meta: metaOf(given), ownHooks: true };
      const report = onProgress && ((progress: CallProgress) => onProgress(progress));
      const answer = await this.#host.call(name, args, { ...options, onProgress: report });
      const { kind, json, size, value } = answer;
      if (kind === "error") return readError(value, size);
      const bytes = Buffer.from(json);
      return readResult(bytes, { start: 0, end: bytes.length }, textOnly);
    } catch (error) {
      return failure(error, signal);
    }
  }
}

/** Identifies a tool for all clients; its exposed name may differ by client. */
function keyOf({ server, remoteName }: Pick<AgentTool, "server" | "remoteName">): string {
  return `${server} ${remoteName}`;
}

/** The result of a call that failed without an answer. @throws the signal's reason if the signal is aborted */
function failure(error: unknown, signal: AbortSignal): ToolResult {
  signal.throwIfAborted();
  const { code, message } = toHubError(error);
  return errorResult(message, code);
}

/** A result that tells the model what went wrong. @param code an error code of the hub */
export function errorResult(text: string, code: string | undefined): ToolResult {
  return { content: [{ type: "text", text }], isError: true, code, size: Buffer.byteLength(text) };
}

/** The result for a JSON-RPC error. */
function readError(error: unknown, size: number): ToolResult {
  const { message, hubError } = readPeerError(error);
  const text = message ?? NO_ERROR_MESSAGE;
  const code = hubError?.code ?? "serverError";
  return { content: [{ type: "text", text }], isError: true, code, size };
}

/** Reads a result of `tools/call`: each content block, then the structured content if the blocks do not say the same. */
export function readResult(bytes: Uint8Array, range: ByteRange, textOnly = false): ToolResult {
  const result = JsonObject.at(bytes, range);
  const content = result.member("content");
  const blocks = content === undefined ? [] : (scanArray(bytes, content.start)?.items ?? []);
  const shown = blocks.map((block) => readBlock(bytes, block));
  const structured = result.member("structuredContent");
  if (structured !== undefined && !(textOnly && shown.length > 0)) {
    const text = textOf(bytes, structured.start, structured.end);
    const texts = shown.flatMap((block) => (block.type === "text" ? [block.text] : []));
    if (!isSaid(text, texts)) shown.push({ type: "text", text });
  }
  const meta = result.object("_meta");
  const cost = readCost(meta.value(USAGE_META_KEY));
  return {
    content: shown,
    isError: result.value("isError") === true,
    code: meta.string(ERROR_META_KEY),
    size: range.end - range.start,
    ...(cost !== undefined && { report: { cost, events: eventsIn(result) } }),
  };
}

/** The events of a run that the result of an agent tells. */
function eventsIn(result: JsonObject): readonly unknown[] {
  const structured = result.value("structuredContent");
  const events = isTable(structured) ? structured["events"] : undefined;
  return Array.isArray(events) ? (events as readonly unknown[]) : [];
}

/**
 * Maximum length of texts that are parsed to compare them, in UTF-16 code units; parsing two of them takes some tenths
 * of a second. Longer texts must be identical.
 */
const MAX_PARSED = 16 * 1024 * 1024;

/**
 * Whether the texts of a result say all that its structured content says: one of them is the same JSON, in any layout,
 * order of members and form of numbers; or the structured content is an object with one member, because a schema of
 * results must be that of an object, and a text has the value of the member, or each text has one of its items.
 * @param structured JSON text
 */
function isSaid(structured: string, texts: readonly string[]): boolean {
  if (texts.includes(structured)) return true;
  if (texts.length === 0 || structured.length > MAX_PARSED) return false;
  const object = parseJson(structured);
  if (!isTable(object)) return false;
  const [value, ...others] = Object.values(object);
  const isWrapper = value !== undefined && others.length === 0;
  const items = isWrapper && Array.isArray(value) ? (value as readonly unknown[]) : [];
  if (items.length > 0 && items.length === texts.length)
    if (items.every((item, at) => isValueOf(texts[at] ?? "", [item]))) return true;
  const values = isWrapper ? [object, value] : [object];
  return texts.some((text) => isValueOf(text, values));
}

/** Whether a text is one of the values: as JSON, or the string itself. */
function isValueOf(text: string, values: readonly unknown[]): boolean {
  const plain = text.trim();
  if (values.some((value) => typeof value === "string" && value.trim() === plain)) return true;
  if (text.length > MAX_PARSED || !/^[[{"\-\dtfn]/.test(plain)) return false;
  const parsed = parseJson(plain);
  return parsed !== undefined && values.some((value) => isSameValue(parsed, value));
}

/** @returns undefined if the text is no JSON */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Whether two values of JSON are the same, whatever the order of members is. */
function isSameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a))
    return (
      Array.isArray(b) && a.length === b.length && a.every((item, at) => isSameValue(item, b[at]))
    );
  if (!isTable(a) || !isTable(b)) return false;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && isSameValue(a[key], b[key]))
  );
}

function readBlock(bytes: Uint8Array, range: ByteRange): ModelContent {
  const block = JsonObject.at(bytes, range);
  const json = (): ModelContent => ({ type: "text", text: textOf(bytes, range.start, range.end) });
  switch (block.string("type")) {
    case "text": {
      const text = block.string("text");
      return text === undefined ? json() : { type: "text", text };
    }
    case "image": {
      const [data, mimeType] = [block.string("data"), block.string("mimeType")];
      if (data === undefined || mimeType === undefined) return json();
      return { type: "image", mimeType, data };
    }
    case "audio":
      return describeBlock("audio", block.string("mimeType"), block.string("data"));
    case "resource": {
      const resource = block.object("resource");
      const text = resource.string("text");
      if (text !== undefined) return { type: "text", text };
      return describeBlock(
        resource.string("uri") ?? "file",
        resource.string("mimeType"),
        resource.string("blob"),
      );
    }
    default:
      return json();
  }
}

/** Describes content that a model cannot get. @param data base64 */
export function describeBlock(
  what: string,
  mimeType: string | undefined,
  data: string | undefined,
): ModelContent {
  const size = formatSize(Math.floor(((data?.length ?? 0) * 3) / 4));
  const parts = [what, mimeType, size].filter((part) => part !== undefined && part !== "");
  return { type: "text", text: `[${parts.join(", ")}: not shown]` };
}
