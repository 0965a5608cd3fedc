import type * as valibot from "valibot";
import { matchesGlob } from "../catalog/names.ts";
import type { EventKind, HubEvent, Listener, LogLevel } from "../events.ts";
import { delay, globs, limit, size } from "../manifest/schema.ts";
import type { Link } from "../wire/link.ts";
import { type MemberPart, memberOf, type Part, readSpelling, rewrite } from "./spelling.ts";

/*
 * What a plugin is and what it is given: the only file of src that plugins import. A plugin that lives beside a manifest
 * imports nothing at all: its default export is a plugin, or a function that is given an `Api` and returns one.
 */

/** For options: `delay` and `limit` are durations (the latter at least 1 ms), `size` is a number of bytes, `globs` are names or patterns. */
export { delay, globs, limit, size };
export { matchesGlob };
/** For JSON as text, which keeps its spelling: where its parts are, the text of one member, the text with other members. */
export { memberOf, readSpelling, rewrite };
export type { EventKind, HubEvent, Link, Listener, LogLevel, MemberPart, Part };

/** A plugin: a name, what options it takes, and how it is set up. */
export interface Plugin<Options = unknown> {
  /** Letters, digits, `_` and `-`: how logs, errors and `[servers.NAME] plugin = …` call it. */
  readonly name: string;
  /** What checks `options` of the manifest; any Standard Schema, such as one of valibot's. Without it there are none. */
  readonly options?: Schema<Options>;
  /**
   * What becomes of calls and lists while it keeps failing: they are refused (by default, as a plugin may be there to
   * protect something), or pass it by.
   */
  readonly whenBroken?: "refuse" | "pass";
  /** Called once for each entry of the manifest, with its checked options. What it throws refuses the whole manifest. */
  setup(options: Options, host: Host): Parts | Promise<Parts>;
}

/** Says that something is a plugin, and lets the types of its options be known in `setup`. */
export function definePlugin<Options = undefined>(plugin: Plugin<Options>): Plugin<Options> {
  return plugin;
}

/** What a plugin does; any of it may be left out. */
export interface Parts {
  /**
   * What clients are shown of a server's tools: filter, describe, add. Pure: the same for the same. The items are frozen;
   * one that is returned as it is keeps its very bytes. A tool that is added has to be answered by `call`. The plugin that
   * comes first in the manifest is the outermost: it gets what the others made.
   */
  list?(items: readonly Tool[], server: string): readonly Tool[];
  /**
   * Wraps what answers the calls of a tool; called once for each tool, and returning `next` itself leaves the tool alone at
   * no cost. The plugin that comes first in the manifest is the outermost. An error that is thrown fails that call only.
   */
  call?(next: Next, tool: ToolInfo): Next;
  /** Called with each event, in the turn in which it happens. */
  event?(event: HubEvent): void | Promise<void>;
  /** Which events; by default all, which costs something at every call. */
  readonly events?: readonly EventKind[];
  /** Values for `${scheme:path}` in the manifest, by scheme; asked for at each start of a server that uses them. Never shown. */
  readonly secrets?: Readonly<Record<string, ResolveSecret>>;
  /** Servers in this process, each made when it is started; `[servers.NAME] plugin = "…"` in the manifest has their settings. */
  readonly servers?: Readonly<Record<string, () => Link | Promise<Link>>>;
  /** A web application, such as hono's, for the hub's HTTP face under `/plugins/<name>/`. */
  readonly routes?: { fetch(request: Request): Response | Promise<Response> };
  /** Called once at the end, when none of its calls runs any more, or they have taken too long. */
  dispose?(): void | Promise<void>;
}

/** What the hub does for a plugin. */
export interface Host {
  /** The plugin's name. */
  readonly name: string;
  /** Aborted when the plugin is no longer used. */
  readonly signal: AbortSignal;
  log(level: LogLevel, text: string): void;
  /** Listens on the event bus, until the plugin is no longer used. @returns the undo. */
  subscribe(listener: Listener, kinds?: readonly EventKind[]): () => void;
  /** A path of an option as absolute: relative to the manifest's folder, `~/` is the home folder. */
  resolve(path: string): string;
  /** A folder in which the plugin may keep what it likes, in the hub's state folder, which all hubs of a user share; made (0700) if need be. */
  folder(): Promise<string>;
  /** The tools that clients see. @throws if the hub is not running yet, as in `setup` */
  list(signal?: AbortSignal): Promise<readonly Tool[]>;
  /**
   * Calls a tool by the name that clients see; through all plugins but this one. `args` is an object, or the JSON text of one.
   * @throws if the hub is not running yet, as in `setup`
   */
  call(name: string, args?: object | string, signal?: AbortSignal): Promise<Answer>;
  /** The name under which clients see a server's tool now; undefined if they do not. */
  nameOf(server: string, tool: string): string | undefined;
  /** Two ends of a pipe in memory: a Link for `servers`, and for the server itself what MCP's SDK calls a transport. */
  pair(): [Link, Transport];
}

/** A tool as it is listed (schema, Tool). */
export interface Tool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema?: unknown;
  readonly annotations?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

/** A tool that clients see, and where it is. */
export interface ToolInfo {
  readonly server: string;
  /** The server's own name for it. */
  readonly name: string;
  /** What clients call it. */
  readonly exposedName: string;
  /** As the server lists it, changed by the `list` of plugins; parsed when first read. */
  readonly definition: Tool;
  /** Whether all clients use one process of the server. */
  readonly isolation: "shared" | "perClient";
}

/** Passes a call on, and brings its answer. Rejects with an Error that has a `code` (`connectionLost`, `cancelled`, …) if there is none. */
export type Next = (call: ToolCall) => Promise<Answer>;

/** Who calls. */
export interface ClientInfo {
  /** Unique in this hub. */
  readonly id: string;
  /** What the client calls itself. */
  readonly name: string | undefined;
  readonly version: string | undefined;
}

/** One call on its way to a tool. */
export interface ToolCall {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  /** The call's number in this hub, as events have it. */
  readonly number: number;
  /** Aborted when nobody waits for the answer any more: the client cancelled or left, or the deadline has passed. */
  readonly signal: AbortSignal;
  /** Of the whole request, in bytes. */
  readonly size: number;
  /** The arguments as JSON text, exactly as the client spelled them; `{}` if there are none. */
  readonly argumentsJson: string;
  /** The arguments, parsed at each read. An object as a rule, though clients send what they like. Changing them changes nothing, see `with`. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** This call with other arguments (an object, or the JSON text of one), or with a further signal that cancels it, for `next`. */
  with(change: { readonly arguments?: object | string; readonly signal?: AbortSignal }): ToolCall;
  /** Makes an answer of a result such as `{content: […]}`, or of the JSON text of one. It may be given to any call. */
  answer(result: object | string): Answer;
  /** Makes an answer that tells the model, in words, that the call was refused or failed (`isError`). */
  refuse(text: string): Answer;
}

/** The answer to a call. */
export interface Answer {
  /** `error`: a JSON-RPC error, which models do not see as a rule. */
  readonly kind: "result" | "error";
  /** Of the result or error, in bytes. */
  readonly size: number;
  /** The result or error as JSON text, exactly as it is passed on. */
  readonly json: string;
  /** The result or error, parsed at each read. Changing it changes nothing, see `ToolCall.answer`. */
  readonly value: unknown;
  /** Whether it reports that something went wrong: a JSON-RPC error, or a result with `isError`. */
  readonly isError: boolean;
}

/**
 * @param path what stands behind the colon in `${scheme:path}`
 * @throws if there is no such value; the message is shown
 */
export type ResolveSecret = (path: string, context: SecretUse) => string | Promise<string>;

export interface SecretUse {
  /** The server that is to be started. */
  readonly server: string;
  readonly signal: AbortSignal;
}

/** One end of a pipe of JSON-RPC messages, as MCP's SDKs for TypeScript take it. */
export interface Transport {
  start(): Promise<void>;
  send(message: object): Promise<void>;
  close(): Promise<void>;
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
}

/** The part of the Standard Schema interface (version 1) that is needed to check options. */
export interface Schema<Output> {
  readonly "~standard": {
    validate(value: unknown): Validation<Output> | Promise<Validation<Output>>;
    readonly types?: { readonly output: Output } | undefined;
  };
}

export type Validation<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly OptionIssue[] };

export interface OptionIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What a plugin that imports nothing is given: valibot as `v`, and what this file has for options. */
export interface Api {
  readonly v: typeof valibot;
  readonly definePlugin: typeof definePlugin;
  readonly delay: typeof delay;
  readonly limit: typeof limit;
  readonly size: typeof size;
  readonly globs: typeof globs;
  readonly matchesGlob: typeof matchesGlob;
  readonly readSpelling: typeof readSpelling;
  readonly memberOf: typeof memberOf;
  readonly rewrite: typeof rewrite;
}
