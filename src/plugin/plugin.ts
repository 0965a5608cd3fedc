import type * as valibot from "valibot";
import { matchesGlob } from "../catalog/names.ts";
import type { EventKind, EventStamp, HubEvent, LogLevel } from "../base/hub-events.ts";
import { delay, globs, limit, size } from "../manifest/fields.ts";
import type { AgentCaller } from "../approval/policy.ts";
import type { Transport } from "../transport/transport.ts";
import {
  type JsonTextMember,
  type JsonTextPart,
  memberTextOf,
  readJsonText,
  rewriteMembers,
} from "./lossless-json.ts";

/*
 * The plugin API: what a plugin is, and what it receives. Its main type is `Plugin`; start there, then read `Parts` and
 * `Host`; the implementation is in `plugin-set.ts`. This is the only file of `src` that plugins import. A plugin beside
 * a manifest imports nothing: its default export is a plugin, or a function that receives an `Api` and returns a
 * plugin.
 */

/**
 * Schemas for a plugin's options: `delay` and `limit` are durations (a `limit` is at least 1 ms), `size` is a number
 * of bytes, `globs` are names or patterns.
 */
export { delay, globs, limit, size };
export { matchesGlob };
/**
 * Functions for JSON text that keep its formatting: `memberOf` returns the text of one member, `readSpelling` the
 * ranges of the parts, `rewrite` the text with changed members.
 */
export { memberTextOf as memberOf, readJsonText as readSpelling, rewriteMembers as rewrite };
export type {
  AgentCaller,
  EventKind,
  HubEvent,
  Transport as Link,
  LogLevel,
  JsonTextMember as MemberPart,
  JsonTextPart as Part,
};

/** A plugin: its name, its options, and how it is set up. */
export interface Plugin<Options = unknown> {
  /** Letters, digits, `_` and `-`: the name in logs, errors and `[servers.NAME] plugin = …`. */
  readonly name: string;
  /**
   * Validates `options` of the manifest: any Standard Schema, such as valibot's. Without it, the plugin has no options.
   */
  readonly options?: Schema<Options>;
  /**
   * The effect on calls and lists while the plugin keeps failing. `refuse`: they are refused; this is the default,
   * because a plugin may enforce a policy. `pass`: they skip the plugin.
   */
  readonly whenBroken?: "refuse" | "pass";
  /** Called once per manifest entry, with the validated options. If it throws, the whole manifest is refused. */
  setup(options: Options, host: Host): Parts | Promise<Parts>;
}

/** Returns the plugin unchanged; infers the type of the options in `setup`. */
export function definePlugin<Options = undefined>(plugin: Plugin<Options>): Plugin<Options> {
  return plugin;
}

/** The hooks of a plugin; all are optional. */
export interface Parts {
  /**
   * Changes the listed tools of a server before clients see them: filters them, changes their descriptions, or adds
   * tools. Must be pure. The items are frozen; an item that is returned unchanged keeps its bytes. Calls of an added
   * tool must be answered by `call`. The first plugin of the manifest is the outermost: it gets the tools after all
   * other plugins have changed them.
   */
  list?(items: readonly Tool[], server: string): readonly Tool[];
  /**
   * Wraps the calls of a tool. Called once per tool; a plugin that returns `next` itself does not take part in the
   * tool's calls, at no cost. The first plugin of the manifest is the outermost. If the wrapper throws, only that call
   * fails.
   */
  call?(next: Next, tool: ToolInfo): Next;
  /** Called synchronously with each event. */
  event?(event: HubEvent): void | Promise<void>;
  /** The kinds of events for `event`; all by default, which costs time at every call. */
  readonly events?: readonly EventKind[];
  /**
   * Resolvers of `${scheme:path}` in the manifest, by scheme; called at each start of a server that uses the scheme.
   * The values are never shown.
   */
  readonly secrets?: Readonly<Record<string, ResolveSecret>>;
  /**
   * Servers that run in this process, by name; each is created when it is started. Their settings come from
   * `[servers.NAME] plugin = "…"` of the manifest.
   */
  readonly servers?: Readonly<Record<string, OpenServer | PluginServer>>;
  /** A web application, such as hono's, that the hub's HTTP server serves under `/plugins/<name>/`. */
  readonly routes?: { fetch(request: Request): Response | Promise<Response> };
  /**
   * What the plugin has kept of a call that has ended; undefined if it has nothing of it. Called when a person opens
   * the call in the dashboard.
   * @param call the call's number in this hub, as in `ToolCall`
   */
  kept?(call: number): Promise<KeptCall | undefined>;
  /** Called once when the plugin is disposed: after its last call has ended, or after a time limit. */
  dispose?(): void | Promise<void>;
}

/**
 * What a plugin has kept of a call that has ended: JSON texts, without the values that its settings hide.
 * `argumentsSize`, `resultSize`: the size in bytes of a text that was too long to be kept.
 */
export interface KeptCall {
  readonly arguments?: string;
  readonly argumentsSize?: number;
  readonly result?: string;
  readonly resultSize?: number;
}

/** Makes the transport to a server of the plugin; called at each start of the server. */
export type OpenServer = () => Transport | Promise<Transport>;

/** A plugin's server that can be opened separately for each client. */
export interface PluginServer {
  /**
   * `perClient`: each client has a server of its own; `shared`: all clients have the same. Undefined: the manifest
   * decides; by default all clients have the same.
   */
  readonly isolation?: "shared" | "perClient";
  /**
   * The defaults of `tools.approval` for tools that have no rule in the manifest. The keys are the server's own tool
   * names.
   */
  readonly approval?: Readonly<Record<string, "auto" | "always" | "never">>;
  /** @param client the only client of this server; undefined if clients share it */
  open(client: ClientInfo | undefined): Transport | Promise<Transport>;
}

/** The functions of the hub that a plugin may use. */
export interface Host {
  /** The plugin's name. */
  readonly name: string;
  /** Aborted when the plugin is disposed. */
  readonly signal: AbortSignal;
  log(level: LogLevel, text: string): void;
  /**
   * Subscribes to the event bus, until the plugin is disposed.
   * @returns a function that unsubscribes
   */
  subscribe(listener: Listener, kinds?: readonly EventKind[]): () => void;
  /**
   * Converts a path from the options to an absolute one. A relative path starts at the manifest's folder, `~/` at the
   * home folder.
   */
  resolve(path: string): string;
  /**
   * A folder for the plugin's own files, in the hub's state folder, which all hubs of a user share; created (0700) if
   * missing.
   */
  folder(): Promise<string>;
  /**
   * The tools that clients see.
   * @throws if the hub is not running yet, as in `setup`
   */
  list(signal?: AbortSignal): Promise<readonly Tool[]>;
  /**
   * Calls a tool by its exposed name, through all plugins but this one. `args` is an object, or the JSON text of one.
   * @param options the options, or only their signal
   * @throws if the hub is not running yet, as in `setup`
   */
  call(name: string, args?: object | string, options?: AbortSignal | CallOptions): Promise<Answer>;
  /** The exposed name of a server's tool; undefined if clients do not see the tool. */
  nameOf(server: string, tool: string): string | undefined;
  /**
   * Creates an in-memory transport. @returns its two ends: one to return from `servers`, and one for the server, as a
   * transport of the MCP SDK
   */
  pair(): [Transport, SdkTransport];
}

/** A tool as listed by `tools/list` (`Tool` in the MCP schema). */
export interface Tool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema?: unknown;
  readonly annotations?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

/** A tool that clients see, and its server. */
export interface ToolInfo {
  readonly server: string;
  /** The server's own name of the tool. */
  readonly name: string;
  /** The name that clients see. */
  readonly exposedName: string;
  /** The server's listed tool, as changed by plugins' `list`; parsed when first read. */
  readonly definition: Tool;
  /** Whether clients share a process of the server, and so may see the same answers. */
  readonly isolation: "shared" | "perClient";
}

/**
 * Forwards a call to the next plugin or the server, and resolves to its answer. If there is no answer, rejects with
 * an Error that has a `code` (`connectionLost`, `cancelled`, …).
 */
export type Next = (call: ToolCall) => Promise<Answer>;

/** Options for a plugin that calls a tool. */
export interface CallOptions {
  /** Cancels the call at its server. */
  readonly signal?: AbortSignal | undefined;
  /** Called with each progress notification of the server; its params are not validated. */
  readonly onProgress?: ((progress: Readonly<Record<string, unknown>>) => void) | undefined;
  /**
   * The client's call of which the new call is a part. The new call ends when the client's call ends, the server's
   * questions go to that client, and events have the numbers of both calls. Tools of all servers can be called, even
   * if the client does not see them.
   */
  readonly for?: ToolCall | undefined;
  /** With `for`: the agent that makes the call. The manifest's approval rules for agents then apply. */
  readonly agent?: AgentCaller | undefined;
  /** With `for`: members for the request's `_meta`. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /** With `for`: whether the call also passes through the plugin's own `call` hook; false by default. */
  readonly ownHooks?: boolean | undefined;
}

/** A form for a person (MCP, elicitation, form mode). `schema` is its `requestedSchema`: an object of plain values. */
export interface Form {
  readonly message: string;
  readonly schema: object;
}

/** The person's response to a form. */
export type FormResult =
  | { readonly action: "accept"; readonly content: Readonly<Record<string, unknown>> }
  | { readonly action: "decline" | "cancel" };

/** The client that sent a call. */
export interface ClientInfo {
  /** Unique in this hub. */
  readonly id: string;
  /** `clientInfo.name` of the client. */
  readonly name: string | undefined;
  readonly version: string | undefined;
  /** The configured name of the client, if it has its own token. */
  readonly principal?: string | undefined;
  /** Whether the client cannot be distinguished from others: all anonymous clients have the same id. */
  readonly isAnonymous?: boolean;
}

/** A progress notification (MCP, progress). `progress` must increase with each notification. */
export interface Progress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

/** Called synchronously with an event, and with its number and time. */
export type Listener = (event: HubEvent, stamp: EventStamp) => void;

/** A call of a tool. */
export interface ToolCall {
  readonly tool: ToolInfo;
  readonly client: ClientInfo;
  /** The call's number in this hub, as in events. */
  readonly number: number;
  /**
   * Aborted when the answer is not needed any more: the client cancelled or disconnected, or the deadline has passed.
   */
  readonly signal: AbortSignal;
  /** Size of the whole request, in bytes. */
  readonly size: number;
  /** The arguments as JSON text, exactly as the client sent them; `{}` if there are none. */
  readonly argumentsJson: string;
  /**
   * The arguments, parsed at each read. Usually an object, but clients may send anything. To change them, use `with`.
   */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** `_meta` of the request, parsed at each read; empty if there is none. */
  readonly meta: Readonly<Record<string, unknown>>;
  /** The agent of toolmux that makes the call; undefined if the client itself makes it. */
  readonly agent: AgentCaller | undefined;
  /**
   * Makes a copy of this call to pass to `next`, with other arguments (an object, or the JSON text of one) or with an
   * additional signal that cancels it.
   */
  with(change: { readonly arguments?: object | string; readonly signal?: AbortSignal }): ToolCall;
  /**
   * Makes an answer from a result such as `{content: […]}`, or from its JSON text. The same answer may be returned
   * for any number of calls.
   */
  answer(result: object | string): Answer;
  /** Makes an answer that tells the model that the call was refused or failed (`isError`). */
  refuse(text: string): Answer;
  /**
   * Whether the client asked for a task (2025-11-25). The client then gets the task that the server creates, while
   * the call continues until the task has a result.
   */
  readonly isTask: boolean;
  /** Reports progress of the call: restarts its timeout, and notifies the client if it asked for progress. */
  progress(progress: Progress): void;
  /** Sets the call's deadline to `ms` from now, instead of the manifest's timeout. Progress does not shorten it. */
  setDeadline(ms: number): void;
  /**
   * Answers the call with a task at once, if the client supports tasks (2026-07-28). The call continues: its progress
   * becomes the task's status, and its answer the task's result. Does nothing for other clients.
   */
  becomeTask(): void;
  /** Whether the client can show forms (MCP, elicitation). */
  readonly canElicit: boolean;
  /**
   * Shows a form to the person at the client. The call's deadlines are paused meanwhile. The form is withdrawn when
   * the call ends or the signal is aborted. Rejects with an Error whose `code` is `notAsked` if the client cannot be
   * asked, `invalidParams` if its answer is invalid, or `cancelled`.
   */
  elicit(form: Form, signal?: AbortSignal): Promise<FormResult>;
  /** The client's support for sampling: none, only text, or also tools (`sampling.tools`). */
  readonly canSample: false | "text" | "tools";
  /**
   * Asks the client's model (MCP, sampling). `params` and the result are those of `sampling/createMessage`; the result
   * is an object that is not validated further. Deadlines, withdrawal and errors are as for `elicit`; the error is
   * `notAsked`, too, if the params have tools but the client does not support them.
   */
  sample(
    params: Readonly<Record<string, unknown>>,
    signal?: AbortSignal,
  ): Promise<Readonly<Record<string, unknown>>>;
}

/** The answer to a call. */
export interface Answer {
  /** `error`: a JSON-RPC error, which models usually do not see. */
  readonly kind: "result" | "error";
  /** Size of the result or error, in bytes. */
  readonly size: number;
  /** The result or error as JSON text, exactly as it is passed on. */
  readonly json: string;
  /** The result or error, parsed at each read. Changing the object has no effect, see `ToolCall.answer`. */
  readonly value: unknown;
  /** Whether the call failed: a JSON-RPC error, or a result with `isError`. */
  readonly isError: boolean;
}

/**
 * Resolves `${scheme:path}` in the manifest.
 * @param path the text after the colon
 * @throws if there is no such value; the error's message is shown to the user
 */
export type ResolveSecret = (path: string, context: SecretUse) => string | Promise<string>;

export interface SecretUse {
  /** The server that is being started. */
  readonly server: string;
  readonly signal: AbortSignal;
}

/** A transport as MCP's TypeScript SDKs define it. */
export interface SdkTransport {
  start(): Promise<void>;
  send(message: object): Promise<void>;
  close(): Promise<void>;
  onmessage?(message: object): void;
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
}

export type { SdkTransport as Transport };

/** The part of the Standard Schema interface (version 1) that validates options. */
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

/** The argument of a plugin that is exported as a function: valibot as `v`, and this file's schemas and functions. */
export interface Api {
  readonly v: typeof valibot;
  readonly definePlugin: typeof definePlugin;
  readonly delay: typeof delay;
  readonly limit: typeof limit;
  readonly size: typeof size;
  readonly globs: typeof globs;
  readonly matchesGlob: typeof matchesGlob;
  readonly readSpelling: typeof readJsonText;
  readonly memberOf: typeof memberTextOf;
  readonly rewrite: typeof rewriteMembers;
}
