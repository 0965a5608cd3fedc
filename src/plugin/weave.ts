import { HubError } from "../errors.ts";
import { Sendable } from "./answer.ts";
import { disown, entrust, isOwnError } from "./fault.ts";
import type { Member } from "./member.ts";
import type { Answer, Next, ToolCall, ToolInfo } from "./plugin.ts";

/** Where a call has its passage. Plugins do not see it. */
export const PASSAGE: unique symbol = Symbol("passage");

/** The one way of a call through all plugins, however often they change it or send it. */
export interface Passage {
  /** Sends it to the server. */
  relay(call: PassingCall): Promise<Answer>;
  /** Nobody waits for the answer any more. */
  readonly isOver: boolean;
  /** The plugin whose call it is, which does not see it itself. */
  readonly except: Member | undefined;
  /** How many plugins have it and have not given it back. The last one of them has it in its hands. */
  readonly held: number;
  /** That plugin has it, as do `at` others that are further out. */
  hold(member: Member, at: number): void;
  release(member: Member): void;
  /** What the plugin that was entered last got from its `next`. */
  latest: Promise<Answer> | undefined;
}

/** A call as the hub gives it to plugins. */
export interface PassingCall extends ToolCall {
  /** What plugins have put in the place of the client's arguments, as JSON text. */
  readonly changed: string | undefined;
  /** What plugins cancel it with, beside the call's own signal. */
  readonly limits: readonly AbortSignal[];
  readonly [PASSAGE]: Passage;
}

/**
 * The way of a tool's calls through the plugins that are for it, outermost first. undefined if none of them wants to see
 * them: then there is nothing between client and server.
 */
export function weave(
  members: readonly Member[],
  tool: ToolInfo,
): ((call: PassingCall) => Promise<Answer>) | undefined {
  // What answers is the server.
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
    // It is asked again when it is called, and that fails the call.
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
      // Whoever has lost interest in it need not take its failure.
      watched.catch(() => {});
      return watched;
    }
    // It has only passed the call on, so there is nothing to watch.
    member.succeed("call");
    return passage.latest;
  };
}

/** What a plugin answers, once that is known to be an answer; what it throws fails the call. */
async function watch(member: Member, promise: unknown, passage: Passage): Promise<Answer> {
  try {
    const answer = await promise;
    if (!Sendable.is(answer)) {
      throw new TypeError("its call() has to end with what next() or call.answer() gave it");
    }
    member.succeed("call");
    return answer;
  } catch (error) {
    // What next() threw at it is not its own fault, nor is what comes after the end.
    if (isOwnError(error)) throw error;
    if (passage.isOver) throw entrust(new HubError("cancelled", "The call has ended."));
    throw member.fail("call", error);
  } finally {
    passage.release(member);
  }
}

/** Whoever has lost interest in it need not take its failure. */
function refuse(reason: HubError): Promise<Answer> {
  const refused = new Promise<Answer>((_, reject) => reject(reason));
  refused.catch(() => {});
  return refused;
}

/** A call on its way to that tool. @throws {TypeError} if it is none */
function passing(call: ToolCall, tool: ToolInfo): PassingCall {
  if (PASSAGE in call && call.tool === tool) return call as PassingCall;
  throw new TypeError("next() takes the call that it was given, or what call.with() made of it");
}
