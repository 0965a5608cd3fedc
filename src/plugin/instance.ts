import type { Clock } from "../base/clock.ts";
import { matchesGlob } from "../catalog/names.ts";
import { HubError } from "../base/errors.ts";
import type { LogLevel } from "../base/events.ts";
import type { PluginSpec } from "../manifest/schema.ts";
import { Breaker, MOST_FAILURES, REST } from "./breaker.ts";
import { describeFault, entrust } from "./errors.ts";
import type { Parts, Plugin } from "./plugin.ts";

/** The hooks of a plugin that have a circuit breaker each. */
export type Duty = "call" | "list" | "event";

/** The effect of an open circuit, as the end of a sentence. */
const CONSEQUENCES = {
  refuse: {
    call: "the calls that it is for are refused",
    list: "the tools that it is for are hidden",
    event: "it gets no events",
  },
  pass: {
    call: "calls go past it",
    list: "lists go past it",
    event: "it gets no events",
  },
} as const satisfies Record<"refuse" | "pass", Record<Duty, string>>;

export interface MemberParts {
  readonly spec: PluginSpec;
  readonly plugin: Plugin;
  readonly clock: Clock;
  log(level: LogLevel, text: string): void;
}

/** The status of a plugin. */
export interface PluginStatus {
  readonly name: string;
  /** `use` of its manifest entry. */
  readonly use: string;
  /** The hooks whose circuit is open. */
  readonly broken: readonly Duty[];
  readonly lastError: HubError | undefined;
}

/** Maximum number of distinct failures that are logged. */
const MOST_TOLD = 100;

/** One plugin in use: which servers and tools it applies to, its hooks, and their failures. */
export class Member {
  readonly name: string;
  readonly spec: PluginSpec;
  /** What its `setup` has returned. */
  parts: Parts = {};
  readonly #parts: MemberParts;
  readonly #breakers: Readonly<Record<Duty, Breaker>>;
  #lastError: HubError | undefined;
  /** The failures that were logged, each once. */
  readonly #told = new Set<string>();

  constructor(parts: MemberParts) {
    const { spec, plugin, clock } = parts;
    this.#parts = parts;
    this.name = plugin.name;
    this.spec = spec;
    this.#breakers = {
      call: new Breaker(clock),
      list: new Breaker(clock),
      event: new Breaker(clock),
    };
  }

  /** Whether it applies to that server. */
  isForServer(server: string): boolean {
    return matchesAny(this.spec.servers, server);
  }

  /** Whether it applies to that tool, given by the server's own name. */
  isForTool(tool: string): boolean {
    return matchesAny(this.spec.tools, tool);
  }

  /** Whether calls and lists skip it while its circuit is open, instead of being refused. */
  get isOptional(): boolean {
    return this.#parts.plugin.whenBroken === "pass";
  }

  get status(): PluginStatus {
    const { name, spec } = this;
    const broken = (["call", "list", "event"] as const).filter((duty) => this.isBroken(duty));
    return { name, use: spec.use, broken, lastError: this.#lastError };
  }

  log(level: LogLevel, text: string): void {
    this.#parts.log(level, `plugin "${this.name}": ${text}`);
  }

  isBroken(duty: Duty): boolean {
    return this.#breakers[duty].isBroken;
  }

  succeed(duty: Duty): void {
    this.#breakers[duty].succeed();
  }

  /**
   * Counts a failure of a hook: it threw, or returned something invalid.
   * @returns the error for the client
   */
  fail(duty: Duty, thrown: unknown): HubError {
    const error = this.complain(thrown);
    if (this.#breakers[duty].fail()) {
      const then = CONSEQUENCES[this.isOptional ? "pass" : "refuse"][duty];
      this.log("error", `failed ${MOST_FAILURES} times in a row: for ${REST / 1000} s ${then}`);
    }
    return error;
  }

  /**
   * Logs a failure, once.
   * @returns the error for the client, if one waits
   */
  complain(thrown: unknown): HubError {
    const { fault, place } = describeFault(thrown, this.spec.path);
    const text = `Plugin "${this.name}" failed: ${fault}`;
    this.#lastError = entrust(new HubError("pluginFailed", text, { cause: thrown }));
    const line = `failed: ${fault}${place === undefined ? "" : ` (${place})`}`;
    if (this.#told.size < MOST_TOLD && !this.#told.has(line)) {
      this.#told.add(line);
      this.log("error", line);
    }
    return this.#lastError;
  }

  /** The error while the circuit is open. */
  refuse(): HubError {
    const why = this.#lastError?.message ?? `Plugin "${this.name}" failed.`;
    const end = /[.!?]$/.test(why) ? "" : ".";
    const text = `${why}${end} It failed ${MOST_FAILURES} times in a row and is left alone for a while.`;
    return entrust(new HubError("pluginFailed", text));
  }
}

function matchesAny(globs: readonly string[] | undefined, name: string): boolean {
  return globs?.some((glob) => matchesGlob(glob, name)) ?? true;
}
