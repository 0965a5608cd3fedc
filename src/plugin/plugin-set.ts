/**
 * plugin/: the API for plugins, and what loads and runs them. `plugin.ts` is all that a plugin imports, `load.ts` finds
 * its code, `setup.ts` makes the instances of a manifest, `handler-chain.ts` takes a call through the plugins,
 * `listing-rewriter.ts` a listing, `provided-servers.ts` has the servers that plugins provide. Main types: `Plugin`
 * (`plugin.ts`), what an author writes; `PluginInstance` (`instance.ts`), one entry of `[[plugins]]`; `PluginSet`,
 * below, all instances of a hub. Start with `plugin.ts`, then read this file.
 */
import { formatDuration } from "../base/format.ts";
import type { ListedRoute } from "../catalog/section.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import type { PluginServer } from "../manifest/manifest.ts";
import type { SchemeResolvers } from "../manifest/resolve.ts";
import { settlesWithin, abortable } from "../base/clock.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type { ProcessStats } from "../process/child-process.ts";
import type {
  NegotiatedProtocol,
  SendOptions,
  SentRequest,
  Transport,
  TransportEvents,
} from "../transport/transport.ts";
import {
  describePluginFault,
  isHandled,
  isNotError,
  isThrownBelow,
  positionInFile,
} from "./errors.ts";
import type { HubAccess } from "./host.ts";
import { openPluginServer } from "./provided-servers.ts";
import type { PluginInstance, PluginStatus } from "./instance.ts";
import type { Answer, ClientInfo, KeptCall, ResolveSecret, ToolInfo } from "./plugin.ts";
import { ListingRewriter, toTool } from "./listing-rewriter.ts";
import { buildCallChain, type ChainedCall } from "./handler-chain.ts";

/** The path of a tool's calls through the plugins that apply to it. */
export interface CallPath {
  readonly tool: ToolInfo;
  /** Never throws. */
  run(call: ChainedCall): Promise<Answer>;
}

/** Time limit for a plugin's secret, in ms. */
const SECRET_TIMEOUT = 30_000;
/** Time limit for a plugin's `dispose`, in ms. */
const DISPOSE_TIMEOUT = 1000;

/** The plugins of one manifest, after their `setup`. If the manifest's plugins change, the whole set is replaced. */
export class PluginSet {
  /** The number of the set, unique in this process. */
  readonly number: number;
  /** The plugins' resolvers of `${scheme:…}`. */
  readonly schemes: SchemeResolvers;
  readonly plugins: readonly PluginInstance[];
  readonly #abort: AbortController;
  readonly #listingRewriter: ListingRewriter;
  readonly #callPlugins: readonly PluginInstance[];
  readonly #callPaths = new WeakMap<ListedRoute, CallPath | "none">();
  /**
   * Call paths by listed item, so that a call path survives a rebuild of the routes as long as the tool is the same.
   */
  readonly #callPathsByItem = new WeakMap<
    ListedItem,
    { readonly tool: ToolInfo; readonly callPath: CallPath | "none" }[]
  >();
  #hub: HubAccess | undefined;
  /** Number of running calls that pass through plugins, plus number of open transports to plugins' servers. */
  #running = 0;
  /** Settles when `#running` is 0; undefined if nobody waits for that. */
  #idle: PromiseWithResolvers<void> | undefined;
  #disposed: Promise<void> | undefined;

  /** @param abort tells the plugins that they are being disposed */
  constructor(number: number, plugins: readonly PluginInstance[], abort: AbortController) {
    this.number = number;
    this.plugins = plugins;
    this.#abort = abort;
    this.#listingRewriter = new ListingRewriter(plugins);
    this.#callPlugins = plugins.filter(({ hooks: parts }) => parts.call !== undefined);
    this.schemes = secretResolversOf(plugins, abort.signal);
  }

  /**
   * Decides whether an unhandled error is a plugin's: it was thrown in the plugin's files, or the plugin received it
   * and ignored it, or it is not an Error (toolmux itself throws only Errors).
   * @returns whether a plugin caused it
   */
  attributeError(error: unknown): boolean {
    if (isHandled(error)) return true;
    const external = this.plugins.filter(({ spec }) => spec.path !== undefined);
    const pluginWhere = (
      isBy: (error: unknown, path: string) => unknown,
    ): PluginInstance | undefined => external.find(({ spec: { path = "" } }) => isBy(error, path));
    const plugin = pluginWhere(positionInFile) ?? pluginWhere(isThrownBelow);
    plugin?.logFailure(error);
    if (plugin !== undefined) return true;
    const [first, ...others] = external;
    if (first === undefined || !isNotError(error)) return false;
    if (others.length === 0) first.logFailure(error);
    else
      first.log(
        "error",
        `this plugin or another one threw a value that is not an error: ${describePluginFault(error, undefined).message}`,
      );
    return true;
  }

  get status(): readonly PluginStatus[] {
    return this.plugins.map(({ status }) => status);
  }

  /** The functions that the hub offers to its plugins; undefined before `attach`. */
  get hub(): HubAccess | undefined {
    return this.#hub;
  }

  attach(hub: HubAccess): void {
    this.#hub = hub;
  }

  /** A server's listing as clients may see it. Does not throw. */
  rewriteListing(server: string, items: readonly ListedItem[]): readonly ListedItem[] {
    return this.#listingRewriter.rewrite(server, items);
  }

  /** Whether the last run of every `list` hook succeeded, for every server. */
  get isListingComplete(): boolean {
    return this.#listingRewriter.isComplete;
  }

  /** The path of a route's calls through the plugins, cached; undefined if no plugin wraps the route's calls. */
  callPath(route: ListedRoute, isolation: ToolInfo["isolation"]): CallPath | undefined {
    if (this.#callPlugins.length === 0) return undefined;
    let callPath = this.#callPaths.get(route);
    if (callPath === undefined) {
      callPath = this.#findCallPath(route, isolation);
      this.#callPaths.set(route, callPath);
    }
    return callPath === "none" ? undefined : callPath;
  }

  /** Whether a call is in progress or a transport is open. */
  get isBusy(): boolean {
    return this.#running > 0;
  }

  /** A call has started, or a transport was opened. */
  addUse(): void {
    this.#running++;
  }

  /** A call has ended, or a transport was closed. */
  removeUse(): void {
    if (--this.#running > 0) return;
    this.#idle?.resolve();
    this.#idle = undefined;
  }

  /**
   * Opens the transport to a plugin's server.
   * @param client the only client of the server; undefined if clients share it
   * @throws {HubError} notSupported or pluginFailed
   */
  async openTransport(
    { name: server, plugin }: PluginServer,
    client: ClientInfo | undefined,
  ): Promise<Transport> {
    const member = this.plugins.find(
      ({ name, hooks: parts }) => name === plugin && Object.hasOwn(parts.servers ?? {}, server),
    );
    const make = member?.hooks.servers?.[server];
    if (member === undefined || make === undefined) {
      const text = `No plugin "${plugin}" provides a server "${server}".`;
      throw new HubError("notSupported", text, { server });
    }
    try {
      const transport: unknown = await openPluginServer(make, client);
      if (isTransport(transport)) return new CountedTransport(transport, this);
      throw new TypeError(`what it returned for its server "${server}" is not a link`);
    } catch (error) {
      throw new HubError("pluginFailed", member.logFailure(error).message, {
        server,
        cause: error,
      });
    }
  }

  /**
   * The response of a plugin's web application; undefined if the plugin has none. The promise rejects with
   * pluginFailed.
   */
  serve(plugin: string, request: Request): Promise<Response> | undefined {
    const member = this.plugins.find(({ name, hooks: parts }) => name === plugin && parts.routes);
    const routes = member?.hooks.routes;
    if (member === undefined || routes === undefined) return undefined;
    const answer = async (): Promise<Response> => {
      try {
        const response: unknown = await routes.fetch(request);
        if (response instanceof Response) return response;
        throw new TypeError("its routes returned something that is not a Response");
      } catch (error) {
        throw member.logFailure(error);
      }
    };
    return answer();
  }

  /**
   * What the first plugin that has kept something of an ended call has kept of it, and the plugin's name; undefined if
   * none has. A plugin that fails has kept nothing.
   */
  async findKept(call: number): Promise<(KeptCall & { readonly by: string }) | undefined> {
    for (const member of this.plugins) {
      if (member.hooks.kept === undefined) continue;
      let found: unknown;
      const search = async (): Promise<void> => {
        try {
          found = await member.hooks.kept?.(call);
        } catch (error) {
          member.logFailure(error);
        }
      };
      await settlesWithin(MAX_SEARCH_TIME, search());
      if (typeof found === "object" && found !== null)
        return { ...keptCallOf(found), by: member.name };
    }
    return undefined;
  }

  /** Disposes all plugins after their calls and servers have ended, or after `timeout` ms. Never rejects. */
  async disposeWhenIdle(timeout: number): Promise<void> {
    await this.whenIdle(timeout);
    await this.dispose();
  }

  /** Resolves when the plugins' calls and servers have ended, or after `timeout` ms. Never rejects. */
  async whenIdle(timeout: number): Promise<void> {
    if (!this.isBusy) return;
    this.#idle ??= Promise.withResolvers<void>();
    await settlesWithin(timeout, this.#idle.promise);
  }

  /** Disposes all plugins now. Never rejects; repeated calls return the promise of the first. */
  dispose(): Promise<void> {
    this.#disposed ??= disposeAll(this.plugins, this.#abort);
    return this.#disposed;
  }

  #findCallPath(route: ListedRoute, isolation: ToolInfo["isolation"]): CallPath | "none" {
    const { server, name, item } = route;
    const known = this.#callPathsByItem.get(item) ?? [];
    const same = known.find(
      ({ tool }) =>
        tool.server === server && tool.exposedName === name && tool.isolation === isolation,
    );
    if (same !== undefined) return same.callPath;
    const tool = infoOf(route, isolation);
    const callPath = this.#buildCallPath(tool) ?? "none";
    this.#callPathsByItem.set(item, [...known, { tool, callPath }]);
    return callPath;
  }

  #buildCallPath(tool: ToolInfo): CallPath | undefined {
    const { server, name } = tool;
    const members = this.#callPlugins.filter(
      (member) =>
        member.isForServer(server) &&
        (member.isForTool(name) || this.#listingRewriter.hasAdded(member, server, name)),
    );
    const pass = buildCallChain(members, tool);
    return pass && { tool, run: pass };
  }
}

function isTransport(value: unknown): value is Transport {
  const { open, send, close } = (value ?? {}) as Partial<Record<keyof Transport, unknown>>;
  return [open, send, close].every((part) => typeof part === "function");
}

/** Wraps a transport that a plugin opened. While it is open, it counts as a use of the plugin set. */
class CountedTransport implements Transport {
  readonly #transport: Transport;
  readonly #set: PluginSet;
  #state: "new" | "used" | "closed" = "new";
  readonly kind: Transport["kind"];

  constructor(transport: Transport, set: PluginSet) {
    this.#transport = transport;
    this.#set = set;
    // The objects of plugins are not checked.
    this.kind = (transport as Partial<Transport>).kind ?? "memory";
  }

  redact(text: string): string {
    return this.#transport.redact?.(text) ?? text;
  }

  adopt(protocol: NegotiatedProtocol): void {
    this.#transport.adopt?.(protocol);
  }

  get hasStreams(): true | undefined {
    return this.#transport.hasStreams;
  }

  async open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (this.#state === "new") {
      this.#state = "used";
      this.#set.addUse();
    }
    const forwarded: TransportEvents = {
      message: (message, sentRequest, inbound) => events.message(message, sentRequest, inbound),
      log: (level, source, text) => events.log(level, source, text),
      malformedOutput: (output) => events.malformedOutput?.(output),
      oversized: (head, tail, size) => events.oversized(head, tail, size),
      pressure: (full) => events.pressure(full),
      challenged: (challenge) => events.challenged?.(challenge),
      closed: (cause) => {
        events.closed(cause);
        this.#end();
      },
    };
    try {
      await this.#transport.open(forwarded, signal);
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  send(message: EncodedMessage, info?: SendOptions): SentRequest {
    return this.#transport.send(message, info);
  }

  get queued(): number {
    return this.#transport.queued;
  }

  pause(): void {
    this.#transport.pause();
  }

  resume(): void {
    this.#transport.resume();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#transport.processStats();
  }

  async close(): Promise<void> {
    try {
      await this.#transport.close();
    } finally {
      this.#end();
    }
  }

  #end(): void {
    if (this.#state === "used") this.#set.removeUse();
    this.#state = "closed";
  }
}

function infoOf(
  { server, remoteName, name: exposedName, item }: ListedRoute,
  isolation: ToolInfo["isolation"],
): ToolInfo {
  return Object.freeze({
    server,
    name: remoteName,
    exposedName,
    isolation,
    get definition() {
      return toTool(item);
    },
  });
}

/**
 * Aborts the plugins' signal and disposes the plugins concurrently, started in reverse order. Each has a time limit, so
 * that one that hangs does not delay the others. Never rejects.
 */
export async function disposeAll(
  members: readonly PluginInstance[],
  abort: AbortController,
): Promise<void> {
  abort.abort(new HubError("cancelled", "The plugin is no longer used."));
  const endings = members.toReversed().map(async (member) => {
    const dispose = async (): Promise<void> => member.hooks.dispose?.();
    const disposed = dispose().catch((error: unknown) => void member.logFailure(error));
    if (await settlesWithin(DISPOSE_TIMEOUT, disposed)) return;
    member.log("warn", `its dispose() did not finish within ${formatDuration(DISPOSE_TIMEOUT)}`);
  });
  await Promise.all(endings);
}

/** The plugins' resolvers by scheme. `setUpPlugins` has checked that no two plugins have the same scheme. */
function secretResolversOf(
  members: readonly PluginInstance[],
  signal: AbortSignal,
): SchemeResolvers {
  return new Map(
    members.flatMap(({ hooks: parts }) =>
      Object.entries(parts.secrets ?? {}).map(([scheme, resolve]) => [
        scheme,
        (path: string, server: string) => resolveSecret(resolve, path, server, signal),
      ]),
    ),
  );
}

/** @throws {HubError} valueMissing, with the plugin's message */
async function resolveSecret(
  resolve: ResolveSecret,
  path: string,
  server: string,
  disposed: AbortSignal,
): Promise<string> {
  const timeout = AbortSignal.timeout(SECRET_TIMEOUT);
  const signal = AbortSignal.any([disposed, timeout]);
  let value: unknown;
  try {
    value = await abortable((async () => resolve(path, { server, signal }))(), signal);
  } catch (error) {
    const { message: fault } = describePluginFault(error, undefined);
    const text = timeout.aborted
      ? `the plugin did not return it within ${formatDuration(SECRET_TIMEOUT)}`
      : fault;
    throw new HubError("valueMissing", text);
  }
  if (typeof value === "string") return value;
  throw new HubError("valueMissing", "the plugin returned a value that is not a string");
}

/** Time limit, in ms, for a plugin's search for what it has kept of a call. */
const MAX_SEARCH_TIME = 10_000;

/** The members that a kept call has by its type: a plugin may return anything. */
function keptCallOf({ arguments: args, argumentsSize, result, resultSize }: KeptCall): KeptCall {
  return {
    ...(typeof args === "string" && { arguments: args }),
    ...(Number.isSafeInteger(argumentsSize) && { argumentsSize }),
    ...(typeof result === "string" && { result }),
    ...(Number.isSafeInteger(resultSize) && { resultSize }),
  };
}
