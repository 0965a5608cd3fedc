import { HubError } from "../errors.ts";
import { Sendable } from "./answer.ts";
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
  /** That plugin has it, and has not given it back: the last one of those who do has it in its hands. */
  hold(member: Member): void;
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

/** The innermost: what answers is the server. */
const relay: Next = (call) => passing(call)[PASSAGE].relay(passing(call));

/**
 * The way of a tool's calls through the plugins that are for it, outermost first. undefined if none of them wants to see
 * them: then there is nothing between client and server.
 */
export function weave(
  members: readonly Member[],
  tool: ToolInfo,
): ((call: PassingCall) => Promise<Answer>) | undefined {
  const way = members.reduceRight<Next>((inner, member) => wrap(member, tool, inner), relay);
  return way === relay ? undefined : way;
}

function wrap(member: Member, tool: ToolInfo, inner: Next): Next {
  const next: Next = (call) => {
    const answer = inner(passing(call));
    passing(call)[PASSAGE].latest = answer;
    return answer;
  };
  let own: Next;
  try {
    own = member.parts.call?.(next, tool) ?? next;
    if (typeof own !== "function") throw new TypeError("its call() did not return a function");
  } catch (error) {
    const failed = member.fail("call", error);
    own = () => Promise.reject(failed);
  }
  if (own === next) return inner;
  return (call) => {
    const passage = passing(call)[PASSAGE];
    if (member.isBroken("call")) {
      return member.isOptional ? inner(call) : Promise.reject(member.refuse());
    }
    passage.latest = undefined;
    let answer: unknown;
    try {
      answer = own(call);
    } catch (error) {
      answer = Promise.reject(error);
    }
    if (answer === undefined || answer !== passage.latest) {
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
  passage.hold(member);
  try {
    const answer = await promise;
    if (!(answer instanceof Sendable)) {
      throw new TypeError("its call() has to end with what next() or call.answer() gave it");
    }
    member.succeed("call");
    return answer;
  } catch (error) {
    // What next() threw at it is not its own fault, nor is what comes after the end.
    if (error instanceof HubError || passage.isOver) throw error;
    throw member.fail("call", error);
  } finally {
    passage.release(member);
  }
}

function passing(call: ToolCall): PassingCall {
  if (PASSAGE in call) return call as PassingCall;
  throw new TypeError("next() takes the call that it was given, or what call.with() made of it");
}
