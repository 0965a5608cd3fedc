import type { Clock } from "../clock.ts";
import { matchesGlob } from "../catalog/names.ts";
import { HubError } from "../errors.ts";
import type { LogLevel } from "../events.ts";
import type { PluginSpec } from "../manifest/schema.ts";
import { Breaker, MOST_FAILURES, REST } from "./breaker.ts";
import { describeFault, entrust } from "./fault.ts";
import type { Parts, Plugin } from "./plugin.ts";

/** What a plugin does for the hub, each of which may go well or not. */
export type Duty = "call" | "list" | "event";

/** What follows while it cannot be done; by the end of a sentence. */
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

/** How a plugin stands. */
export interface PluginStatus {
  readonly name: string;
  /** As the manifest has it. */
  readonly use: string;
  /** What it has failed at so often that it is left alone for a while. */
  readonly broken: readonly Duty[];
  readonly lastError: HubError | undefined;
}

/** So many different failures are told; more would only be noise. */
const MOST_TOLD = 100;

/** One plugin in use: what it is for, what it does, and how well that goes. */
export class Member {
  readonly name: string;
  readonly spec: PluginSpec;
  /** What its setup has returned. */
  parts: Parts = {};
  readonly #parts: MemberParts;
  readonly #breakers: Readonly<Record<Duty, Breaker>>;
  #lastError: HubError | undefined;
  /** What was told of it: who fails once fails often. */
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

  /** Whether it is for that server. */
  isForServer(server: string): boolean {
    return matchesAny(this.spec.servers, server);
  }

  /** Whether it is for tools of that name; servers' own names. */
  isForTool(tool: string): boolean {
    return matchesAny(this.spec.tools, tool);
  }

  /** Whether calls and lists pass it by while it is broken, instead of being refused. */
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

  /** It threw, or did not do what it has to. @returns what is told of that. */
  fail(duty: Duty, thrown: unknown): HubError {
    const error = this.complain(thrown);
    if (this.#breakers[duty].fail()) {
      const then = CONSEQUENCES[this.isOptional ? "pass" : "refuse"][duty];
      this.log("error", `failed ${MOST_FAILURES} times in a row: for ${REST / 1000} s ${then}`);
    }
    return error;
  }

  /** Tells of a failure, once. @returns what the client is told, if one waits. */
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

  /** Why what it is for is refused while it is broken. */
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
