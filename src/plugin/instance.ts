import { formatDuration } from "../base/format.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { LogLevel } from "../base/hub-events.ts";
import { matchesGlob } from "../catalog/names.ts";
import type { PluginSpec } from "../manifest/manifest.ts";
import { describePluginFault, formatPluginFault, markHandled } from "./errors.ts";
import type { Parts, Plugin } from "./plugin.ts";

/** Number of consecutive failures that opens the circuit. */
export const MAX_FAILURES = 5;
/** How long the circuit stays open, in ms; after that, one more failure opens it again. */
export const OPEN_TIME = 30_000;

/** A circuit breaker that counts consecutive failures. */
export class CircuitBreaker {
  readonly #clock: Clock;
  #failures = 0;
  /** The clock's time, in ms, until which the circuit is open. */
  #openUntil = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#failures >= MAX_FAILURES && this.#clock.now() < this.#openUntil;
  }

  recordSuccess(): void {
    this.#failures = 0;
  }

  /** @returns whether this failure was the one that opened the circuit */
  recordFailure(): boolean {
    if (++this.#failures < MAX_FAILURES) return false;
    this.#openUntil = this.#clock.now() + OPEN_TIME;
    return this.#failures === MAX_FAILURES;
  }
}

/** The hooks of a plugin; each has its own circuit breaker. */
export type PluginHookName = "call" | "list" | "event";

/** The last part of a log sentence: the effect of an open circuit, by `whenBroken` and hook. */
const OPEN_CIRCUIT_EFFECTS = {
  refuse: {
    call: "calls of its tools are refused",
    list: "its tools are hidden",
    event: "it gets no events",
  },
  pass: {
    call: "calls go past it",
    list: "lists go past it",
    event: "it gets no events",
  },
} as const satisfies Record<"refuse" | "pass", Record<PluginHookName, string>>;

export interface PluginInstanceOptions {
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
  readonly broken: readonly PluginHookName[];
  readonly lastError: HubError | undefined;
}

/** Maximum number of distinct failures that are logged. */
const MAX_LOGGED_FAILURES = 100;

/** One plugin in use: which servers and tools it applies to, its hooks, and their failures. */
export class PluginInstance {
  readonly name: string;
  readonly spec: PluginSpec;
  /** The hooks that the plugin's `setup` returned. */
  hooks: Parts = {};
  readonly #options: PluginInstanceOptions;
  readonly #breakers: Readonly<Record<PluginHookName, CircuitBreaker>>;
  #lastError: HubError | undefined;
  /** The failures that were logged, each once. */
  readonly #loggedFailures = new Set<string>();

  constructor(options: PluginInstanceOptions) {
    const { spec, plugin, clock } = options;
    this.#options = options;
    this.name = plugin.name;
    this.spec = spec;
    this.#breakers = {
      call: new CircuitBreaker(clock),
      list: new CircuitBreaker(clock),
      event: new CircuitBreaker(clock),
    };
  }

  /** Whether the plugin applies to a server. */
  isForServer(server: string): boolean {
    return matchesAny(this.spec.servers, server);
  }

  /** Whether the plugin applies to a tool, given by the server's own name for the tool. */
  isForTool(tool: string): boolean {
    return matchesAny(this.spec.tools, tool);
  }

  /** Whether calls and lists skip the plugin while its circuit is open, instead of being refused. */
  get isOptional(): boolean {
    return this.#options.plugin.whenBroken === "pass";
  }

  get status(): PluginStatus {
    const { name, spec } = this;
    const broken = (["call", "list", "event"] as const).filter((hook) => this.isCircuitOpen(hook));
    return { name, use: spec.use, broken, lastError: this.#lastError };
  }

  log(level: LogLevel, text: string): void {
    this.#options.log(level, `plugin "${this.name}": ${text}`);
  }

  isCircuitOpen(hook: PluginHookName): boolean {
    return this.#breakers[hook].isOpen;
  }

  recordSuccess(hook: PluginHookName): void {
    this.#breakers[hook].recordSuccess();
  }

  /**
   * Counts a failure of a hook: it threw, or returned something invalid.
   * @returns the error for the client
   */
  recordFailure(hook: PluginHookName, thrown: unknown): HubError {
    const error = this.logFailure(thrown);
    if (this.#breakers[hook].recordFailure()) {
      const effect = OPEN_CIRCUIT_EFFECTS[this.isOptional ? "pass" : "refuse"][hook];
      this.log(
        "error",
        `failed ${MAX_FAILURES} times in a row: for ${formatDuration(OPEN_TIME)} ${effect}`,
      );
    }
    return error;
  }

  /**
   * Logs a failure, unless the same failure was logged before.
   * @returns the error for the client whose call failed, if there is one
   */
  logFailure(thrown: unknown): HubError {
    const fault = describePluginFault(thrown, this.spec.path);
    const text = `Plugin "${this.name}" failed: ${fault.message}`;
    this.#lastError = markHandled(new HubError("pluginFailed", text, { cause: thrown }));
    const line = `failed: ${formatPluginFault(fault)}`;
    if (this.#loggedFailures.size < MAX_LOGGED_FAILURES && !this.#loggedFailures.has(line)) {
      this.#loggedFailures.add(line);
      this.log("error", line);
    }
    return this.#lastError;
  }

  /** The error that refuses a call while the circuit is open. */
  circuitOpenError(): HubError {
    const reason = this.#lastError?.message ?? `Plugin "${this.name}" failed.`;
    const end = /[.!?]$/.test(reason) ? "" : ".";
    const text = `${reason}${end} It failed ${MAX_FAILURES} times in a row and is skipped for a while.`;
    return markHandled(new HubError("pluginFailed", text));
  }
}

function matchesAny(globs: readonly string[] | undefined, name: string): boolean {
  return globs?.some((glob) => matchesGlob(glob, name)) ?? true;
}
