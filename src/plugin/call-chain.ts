import { HubError } from "../base/errors.ts";
import { Sendable } from "./answer.ts";
import { disown, entrust, isOwnError } from "./errors.ts";
import type { Member } from "./instance.ts";
import type { Answer, Next, ToolCall, ToolInfo } from "./plugin.ts";

/** The key of a call's chain state; a symbol, so that plugins do not see it. */
export const PASSAGE: unique symbol = Symbol("passage");

/** The state of a call in the plugins' chain, shared by all its changed copies. */
export interface Passage {
  /** Sends the call to the server. */
  relay(call: PassingCall): Promise<Answer>;
  /** The call has ended, so the answer is not needed any more. */
  readonly isOver: boolean;
  /** The plugin that makes the call and does not see it itself. */
  readonly except: Member | undefined;
  /** Number of plugins that have the call and have not answered it; the last of them is the innermost. */
  readonly held: number;
  /** Adds a plugin that has the call, after `index` outer ones. */
  hold(member: Member, at: number): void;
  release(member: Member): void;
  /** The promise that `next` returned to the plugin that was entered last. */
  latest: Promise<Answer> | undefined;
}

/** A call as the hub gives it to plugins. */
export interface PassingCall extends ToolCall {
  /** The arguments as JSON text, if plugins have changed them. */
  readonly changed: string | undefined;
  /** Plugins' signals that cancel the call, in addition to its own. */
  readonly limits: readonly AbortSignal[];
  readonly [PASSAGE]: Passage;
}

/**
 * Builds the chain of the plugins that apply to a tool, outermost first; undefined if none wraps the tool, so that its
 * calls go to the server directly.
 */
export function weave(
  members: readonly Member[],
  tool: ToolInfo,
): ((call: PassingCall) => Promise<Answer>) | undefined {
  // The innermost `next` is the server.
  const relay: Next = (call) => {
    const given = passing(call, tool);
    return given[PASSAGE].relay(given);
  };
  const way = members.reduceRight<Next>((inner, member) => wrap(member, tool, inner), relay);
  return way === relay ? undefined : way;
}

function wrap(member: Member, tool: ToolInfo, inner: Next): Next {
  const next: Next = (call) => {
    const given = passing(call, tool);
    const answer = inner(given);
    given[PASSAGE].latest = answer;
    return answer;
  };
  const compose = (): Next => {
    const own: unknown = member.parts.call?.(next, tool) ?? next;
    if (typeof own === "function") return own as Next;
    disown(own);
    throw new TypeError("its call() did not return a function");
  };
  let own: Next | undefined;
  try {
    own = compose();
  } catch {
    // Tried again at the call, which then fails.
  }
  if (own === next) return inner;
  return (call) => {
    const passage = passing(call, tool)[PASSAGE];
    if (passage.except === member) return inner(call);
    if (member.isBroken("call")) return member.isOptional ? inner(call) : refuse(member.refuse());
    const at = passage.held;
    passage.latest = undefined;
    let answer: unknown;
    try {
      own ??= compose();
      answer = own(call);
    } catch (error) {
      answer = Promise.reject(error);
    }
    if (answer === undefined || answer !== passage.latest) {
      passage.hold(member, at);
      const watched = watch(member, answer, passage);
      // Avoids an unhandled rejection if a plugin ignores the promise.
      watched.catch(() => {});
      return watched;
    }
    // The plugin has only passed the call on: nothing to watch.
    member.succeed("call");
    return passage.latest;
  };
}

/** The plugin's answer, once it is validated; if the plugin throws, the call fails. */
async function watch(member: Member, promise: unknown, passage: Passage): Promise<Answer> {
  try {
    const answer = await promise;
    if (!Sendable.is(answer)) {
      throw new TypeError("its call() has to end with what next() or call.answer() gave it");
    }
    member.succeed("call");
    return answer;
  } catch (error) {
    // An error of `next()` is not the plugin's failure, nor is one after the call's end.
    if (isOwnError(error)) throw error;
    if (passage.isOver) throw entrust(new HubError("cancelled", "The call has ended."));
    throw member.fail("call", error);
  } finally {
    passage.release(member);
  }
}

/** Avoids an unhandled rejection if a plugin ignores the promise. */
function refuse(reason: HubError): Promise<Answer> {
  const refused = new Promise<Answer>((_, reject) => reject(reason));
  refused.catch(() => {});
  return refused;
}

/**
 * The call that the hub gave to a plugin for that tool.
 * @throws {TypeError} if it is something else
 */
function passing(call: ToolCall, tool: ToolInfo): PassingCall {
  if (PASSAGE in call && call.tool === tool) return call as PassingCall;
  throw new TypeError("next() takes the call that it was given, or what call.with() made of it");
}
