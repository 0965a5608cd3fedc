import type { Clock } from "../clock.ts";
import { HubError } from "../errors.ts";
import type { LogLevel } from "../events.ts";
import { matchesGlob } from "../catalog/names.ts";
import type { PluginSpec } from "../manifest/schema.ts";
import { describeFault } from "./fault.ts";
import type { Parts, Plugin } from "./plugin.ts";

/** After so many failures in a row a plugin is broken: it is left alone for a while. */
const MOST_FAILURES = 5;
/** How long that is, in ms; then one more failure makes it broken again. */
const REST = 30_000;

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
  /** It has failed so often that it is left alone for a while. */
  readonly isBroken: boolean;
  readonly lastError: HubError | undefined;
}

/** One plugin in use: what it is for, what it does, and how well that goes. */
export class Member {
  readonly name: string;
  /** Set when it was set up. */
  parts: Parts = {};
  readonly #parts: MemberParts;
  #failures = 0;
  /** When it may try again, in ms of the clock. */
  #rested = 0;
  #lastError: HubError | undefined;
  /** What was told of it: who fails once fails often. */
  readonly #told = new Set<string>();

  constructor(parts: MemberParts) {
    this.#parts = parts;
    this.name = parts.plugin.name;
  }

  /** Whether it is for that server. */
  isForServer(server: string): boolean {
    return matchesAny(this.#parts.spec.servers, server);
  }

  /** Whether it is for that tool, by its server's own name for it. */
  isForTool(tool: string): boolean {
    return matchesAny(this.#parts.spec.tools, tool);
  }

  get spec(): PluginSpec {
    return this.#parts.spec;
  }

  get isBroken(): boolean {
    return this.#failures >= MOST_FAILURES && this.#parts.clock.now() < this.#rested;
  }

  /** Whether calls and lists pass it by while it is broken, instead of being refused. */
  get isOptional(): boolean {
    return this.#parts.plugin.whenBroken === "pass";
  }

  get status(): PluginStatus {
    const { name, isBroken } = this;
    return { name, use: this.spec.use, isBroken, lastError: this.#lastError };
  }

  log(level: LogLevel, text: string): void {
    this.#parts.log(level, `plugin "${this.name}": ${text}`);
  }

  /** It did what it is for. */
  succeed(): void {
    this.#failures = 0;
  }

  /** It threw, or did not do what it has to. @returns what is told of that. */
  fail(thrown: unknown): HubError {
    const { fault, place } = describeFault(thrown, this.spec.path);
    const error = new HubError("pluginFailed", `Plugin "${this.name}" failed: ${fault}`, {
      cause: thrown,
    });
    this.#lastError = error;
    const text = `failed: ${fault}${place === undefined ? "" : ` (${place})`}`;
    if (this.#told.size < MOST_TOLD && !this.#told.has(text)) {
      this.#told.add(text);
      this.log("error", text);
    }
    if (++this.#failures < MOST_FAILURES) return error;
    this.#rested = this.#parts.clock.now() + REST;
    if (this.#failures === MOST_FAILURES) {
      const then = this.isOptional ? "all goes past it" : "what it is for is refused";
      this.log("error", `failed ${MOST_FAILURES} times in a row; for ${REST / 1000} s ${then}`);
    }
    return error;
  }

  /** Why something that it is for is refused while it is broken. */
  refuse(): HubError {
    const why = this.#lastError?.message ?? `Plugin "${this.name}" failed.`;
    const text = `${why} It has failed ${MOST_FAILURES} times in a row and is left alone for a while.`;
    return new HubError("pluginFailed", text);
  }
}

/** So many different failures are told; more would only be noise. */
const MOST_TOLD = 100;

function matchesAny(globs: readonly string[] | undefined, name: string): boolean {
  return globs?.some((glob) => matchesGlob(glob, name)) ?? true;
}
