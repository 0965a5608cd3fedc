import { HubError } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";

/** A key in `_meta` of tool calls. Its value lists the agent runs of which the call is a part. */
export const CHAIN_META_KEY = "toolmux/chain";

/** Maximum number of nested agent runs in one hub. */
const MAX_DEPTH = 4;
/** Maximum number of nested agent runs over all hubs. */
const MAX_TOTAL = 8;

/** The agents of nested runs, outermost first: those of other hubs, then those of this hub. */
export class AgentChain {
  static readonly none = new AgentChain([], []);
  /** The agents of other hubs, as `agent` or `agent@session`. */
  readonly #outer: readonly string[];
  readonly #own: readonly string[];

  private constructor(outer: readonly string[], own: readonly string[]) {
    this.#outer = outer;
    this.#own = own;
  }

  /** The chain of a call that another hub has sent. @param meta the `_meta` of its params */
  static fromMeta(meta: unknown): AgentChain {
    const value = isJsonObject(meta) ? meta[CHAIN_META_KEY] : undefined;
    if (!Array.isArray(value)) return AgentChain.none;
    return new AgentChain(
      value.filter((one) => typeof one === "string").slice(0, MAX_TOTAL + 1),
      [],
    );
  }

  /** Number of nested runs. */
  get depth(): number {
    return this.#outer.length + this.#own.length;
  }

  /** Whether the chain has a run of this hub. */
  get isInside(): boolean {
    return this.#own.length > 0;
  }

  /** The `_meta` for tool calls of the innermost run; undefined outside of runs. */
  get meta(): Readonly<Record<string, unknown>> | undefined {
    if (this.depth === 0) return undefined;
    return { [CHAIN_META_KEY]: [...this.#outer, ...this.#own] };
  }

  /**
   * The chain with one more run.
   * @param session the id of the agent's session, if it has one
   * @throws {HubError} agentLoop if a run of the agent is in the chain; agentDepth if the chain is too long
   */
  with(agent: string, session?: string): AgentChain {
    const isSame = (link: string): boolean => link === agent || link.startsWith(`${agent}@`);
    const path = [...this.#own, agent].join(" → ");
    if (this.#own.some(isSame)) {
      const text = `Agent "${agent}" is already at work in this run (${path}). Do the task without it.`;
      throw new HubError("agentLoop", text);
    }
    if (this.#own.length >= MAX_DEPTH || this.depth >= MAX_TOTAL) {
      const text = `Agents call agents too deeply (${path}): at most ${MAX_DEPTH} in one hub, ${MAX_TOTAL} over all.`;
      throw new HubError("agentDepth", text);
    }
    return new AgentChain(this.#outer, [
      ...this.#own,
      session === undefined ? agent : `${agent}@${session}`,
    ]);
  }
}
