import { HubError } from "../base/errors.ts";
import { PluginAnswer } from "./answer.ts";
import { ignoreRejection, isOwnError, markHandled } from "./errors.ts";
import type { PluginInstance } from "./instance.ts";
import type { Catalog } from "../catalog/catalog.ts";
import type {
  Answer,
  CallOptions,
  Form,
  FormResult,
  Next,
  Progress,
  ToolCall,
  ToolInfo,
} from "./plugin.ts";
import type { SpanContext } from "../telemetry/trace-context.ts";

/** The key of a call's chain state; a symbol, so that plugins do not see it. */
export const CHAIN_STATE: unique symbol = Symbol("call chain state");

export interface ClientCatalogs {
  /** The catalog of all servers. `Host.call` can call its tools as a part of the client's call. */
  readonly all: Catalog;
  /** The catalog that the client sees; the client's modes may hide items. */
  readonly shown: Catalog;
  /** Whether the client's token allows a server, also to agents that the client starts. */
  allows(server: string): boolean;
}

/** The state of a call in the plugins' chain, shared by all its changed copies. */
export interface CallChainState {
  /** Sends the call to the server. */
  send(call: ChainedCall): Promise<Answer>;
  /** The span of the client's request; undefined: it is not recorded. */
  readonly span: SpanContext | undefined;
  /** Whether the client can show forms (MCP, elicitation). */
  readonly canElicit: boolean;
  /** Shows the person at the client a form; see `ToolCall.elicit`. */
  elicit(form: Form, signals: readonly AbortSignal[]): Promise<FormResult>;
  /** The client's support for sampling. */
  readonly canSample: ToolCall["canSample"];
  /** Asks the model of the client; see `ToolCall.sample`. */
  sample(
    params: Readonly<Record<string, unknown>>,
    signals: readonly AbortSignal[],
  ): Promise<Readonly<Record<string, unknown>>>;
  /**
   * Calls `listener` whenever the call's deadline is paused, because the client or a person is being asked, and
   * whenever it resumes. If the deadline is paused already, calls it at once.
   * @returns a function that unsubscribes
   */
  watchPauses(listener: (isPaused: boolean) => void): () => void;
  /** See `ToolCall.progress`, `ToolCall.setDeadline` and `ToolCall.becomeTask`. */
  reportProgress(progress: Progress): void;
  setDeadline(ms: number): void;
  becomeTask(): void;
  /** The catalogs of this call's client, as soon as they are known. */
  catalogs(): Promise<ClientCatalogs>;
  /** Calls a tool as a part of this call; `args` is JSON text. See `Host.call`. */
  callTool(
    plugin: PluginInstance,
    name: string,
    args: string,
    options: CallOptions,
  ): Promise<Answer>;
  /** Whether the call has ended, so that its answer is no longer needed. */
  readonly isOver: boolean;
  /** The plugin that makes this call through its host API: its own `call` hook is skipped. */
  readonly excludedPlugin: PluginInstance | undefined;
  /** Number of plugins that have received the call and have not answered it; the last of them is the innermost. */
  readonly holderCount: number;
  /**
   * Adds a plugin that has received the call. `index`: number of plugins that received the call before it, which are
   * further out in the chain.
   */
  addHolder(member: PluginInstance, index: number): void;
  removeHolder(member: PluginInstance): void;
  /** The promise that `next` returned to the plugin that received the call last. */
  latestAnswer: Promise<Answer> | undefined;
}

/** A call as the hub gives it to plugins. */
export interface ChainedCall extends ToolCall {
  /** The arguments as JSON text, if plugins have changed them; else undefined. */
  readonly changedArguments: string | undefined;
  /** Plugins' signals that cancel the call, in addition to its own. */
  readonly cancelSignals: readonly AbortSignal[];
  readonly [CHAIN_STATE]: CallChainState;
}

/**
 * Builds the chain of the plugins that apply to a tool, outermost first; undefined if none wraps the tool, so that its
 * calls go to the server directly.
 */
export function buildCallChain(
  plugins: readonly PluginInstance[],
  tool: ToolInfo,
): ((call: ChainedCall) => Promise<Answer>) | undefined {
  // The innermost `next` sends the call to the server.
  const sendToServer: Next = (call) => {
    const chainedCall = asChainedCall(call, tool);
    return chainedCall[CHAIN_STATE].send(chainedCall);
  };
  const outermost = plugins.reduceRight<Next>(
    (inner, member) => wrap(member, tool, inner),
    sendToServer,
  );
  return outermost === sendToServer ? undefined : outermost;
}

function wrap(plugin: PluginInstance, tool: ToolInfo, inner: Next): Next {
  const next: Next = (call) => {
    const chainedCall = asChainedCall(call, tool);
    const answer = inner(chainedCall);
    chainedCall[CHAIN_STATE].latestAnswer = answer;
    return answer;
  };
  const makeWrapper = (): Next => {
    const own: unknown = plugin.hooks.call?.(next, tool) ?? next;
    if (typeof own === "function") return own as Next;
    ignoreRejection(own);
    throw new TypeError("its call() did not return a function");
  };
  let wrapper: Next | undefined;
  try {
    wrapper = makeWrapper();
  } catch {
    // The error is ignored here: `makeWrapper` runs again at the first call, and if it fails again, that call fails.
  }
  if (wrapper === next) return inner;
  return (call) => {
    const state = asChainedCall(call, tool)[CHAIN_STATE];
    if (state.excludedPlugin === plugin) return inner(call);
    if (plugin.isCircuitOpen("call"))
      return plugin.isOptional ? inner(call) : rejectedAnswer(plugin.circuitOpenError());
    const index = state.holderCount;
    state.latestAnswer = undefined;
    let answer: unknown;
    try {
      wrapper ??= makeWrapper();
      answer = wrapper(call);
    } catch (error) {
      answer = Promise.reject(error);
    }
    if (answer === undefined || answer !== state.latestAnswer) {
      state.addHolder(plugin, index);
      const validated = validateAnswer(plugin, answer, state);
      // Avoids an unhandled rejection if a plugin ignores the promise.
      validated.catch(() => {});
      return validated;
    }
    // The plugin has only forwarded the call: there is no answer of its own to validate.
    plugin.recordSuccess("call");
    return state.latestAnswer;
  };
}

/** The plugin's answer, once it is validated; if the plugin throws, the call fails. */
async function validateAnswer(
  plugin: PluginInstance,
  promise: unknown,
  state: CallChainState,
): Promise<Answer> {
  try {
    const answer = await promise;
    if (!PluginAnswer.is(answer)) {
      throw new TypeError("its call() must return what next() or call.answer() returned");
    }
    plugin.recordSuccess("call");
    return answer;
  } catch (error) {
    // An error that `next()` rejected with is not the plugin's failure, nor is any error after the call has ended.
    if (isOwnError(error)) throw error;
    if (state.isOver) throw markHandled(new HubError("cancelled", "The call has ended."));
    throw plugin.recordFailure("call", error);
  } finally {
    state.removeHolder(plugin);
  }
}

/** Avoids an unhandled rejection if a plugin ignores the promise. */
function rejectedAnswer(reason: HubError): Promise<Answer> {
  const refused = new Promise<Answer>((_, reject) => reject(reason));
  refused.catch(() => {});
  return refused;
}

/**
 * The state of a call that the hub passed to a plugin.
 * @throws {TypeError} if `call` is anything else
 */
export function callStateOf(call: ToolCall): CallChainState {
  if (CHAIN_STATE in call) return (call as ChainedCall)[CHAIN_STATE];
  throw new TypeError("`for` is the call that call() received, or one that call.with() made");
}

/**
 * Checks that a call is one that the hub passed to a plugin for the given tool.
 * @throws {TypeError} if it is not
 */
function asChainedCall(call: ToolCall, tool: ToolInfo): ChainedCall {
  if (CHAIN_STATE in call && call.tool === tool) return call as ChainedCall;
  throw new TypeError("next() takes the call that call() received, or one that call.with() made");
}
