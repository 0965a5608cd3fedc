import {
  allOf,
  type CatalogFilter,
  compileMode,
  type FilterItem,
  matcherOf,
} from "../catalog/filter.ts";
import type { Kind } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { describeModeFault, FULL_ACCESS, type ModeSpec } from "../manifest/modes.ts";
import { FULL_MODE } from "../manifest/manifest.ts";

/** The id of clients that cannot be told apart. */
export const ANYBODY = "anybody";

/** The limits of a client, apart from the mode that the operator chooses for it. */
export interface ClientLimits {
  /** Names of modes: the client sees only what is in all of them. They may change when the manifest is read again. */
  modes(): readonly string[];
  /** Whether the mode of `hub.mode`, or of the operator, limits it, too: not so the operator's own clients. */
  readonly hasOperatorMode: boolean;
  /** The name of the client with a token of its own that it is, if it is one. */
  readonly principal?: string | undefined;
}

/** The limits of plugins, commands and the operator: none. */
export const NO_LIMITS: ClientLimits = { modes: () => [], hasOperatorMode: false };

/** The modes that limit a client together. The same object for the same modes, until the manifest changes. */
export interface ModeSelection {
  /** Equal selections have equal keys; empty: nothing is hidden. */
  readonly key: string;
  /** Without `full`, sorted. */
  readonly modes: readonly ModeSpec[];
  /** Undefined: nothing is hidden. */
  readonly filter: CatalogFilter | undefined;
}

const NO_SELECTION: ModeSelection = { key: "", modes: [], filter: undefined };

/** A choice of the operator that was undone, because the manifest does not have the mode any more. */
export interface UndoneChoice {
  /** Undefined: the choice for all clients. */
  readonly client: string | undefined;
  readonly mode: string;
}

/**
 * The modes of the manifest, and which of them the operator has chosen: `hub.mode`, another one in its place, and others
 * in its place for single clients. What a client sees is what all of its modes show, so no choice but the operator's can
 * show it more.
 */
export class Modes {
  #specs: readonly ModeSpec[] = [];
  #default = FULL_MODE;
  /** The operator's choice for all clients; undefined: `hub.mode`. */
  #chosen: string | undefined;
  /** The operator's choices for single clients, by their ids or the names of principals. */
  readonly #chosenByClient = new Map<string, string>();
  readonly #selections = new Map<string, ModeSelection>();
  /** A mode that limits all clients that have the operator's mode; undefined: none. */
  readonly #commandLine: string | undefined;

  /** @param commandLine the mode of `serve --mode` */
  constructor(commandLine?: string) {
    this.#commandLine = commandLine;
  }

  /** Adopts the modes of a manifest. @returns the choices that it undoes */
  replace(specs: readonly ModeSpec[], defaultMode: string): readonly UndoneChoice[] {
    this.#specs = specs;
    this.#default = defaultMode;
    this.#selections.clear();
    const undone: UndoneChoice[] = [];
    if (this.#chosen !== undefined && !this.#has(this.#chosen)) {
      undone.push({ client: undefined, mode: this.#chosen });
      this.#chosen = undefined;
    }
    for (const [client, mode] of this.#chosenByClient) {
      if (this.#has(mode)) continue;
      undone.push({ client, mode });
      this.#chosenByClient.delete(client);
    }
    return undone;
  }

  /** All modes, `full` first. */
  get all(): readonly ModeSpec[] {
    return [FULL_ACCESS, ...this.#specs];
  }

  /** The operator's mode for clients for which none is chosen. */
  get current(): string {
    return this.#chosen ?? this.#default;
  }

  /** `hub.mode`. */
  get default(): string {
    return this.#default;
  }

  find(name: string): ModeSpec | undefined {
    return this.all.find((mode) => mode.name === name);
  }

  /** The operator's mode for a client. */
  chosenFor(client: string | undefined, principal?: string): string {
    if (this.#chosenByClient.size === 0) return this.current;
    const own = this.#chosenByClient.get(client ?? ANYBODY);
    const ofPrincipal = principal === undefined ? undefined : this.#chosenByClient.get(principal);
    return own ?? ofPrincipal ?? this.current;
  }

  /**
   * Chooses the operator's mode for all clients for which none is chosen.
   * @param mode undefined: `hub.mode`
   * @throws {HubError} usage
   */
  choose(mode: string | undefined): void {
    if (mode !== undefined) this.#check(mode);
    this.#chosen = mode;
  }

  /** Chooses the operator's mode for one client; undefined: that of all. @throws {HubError} usage */
  chooseFor(client: string, mode: string | undefined): void {
    if (mode === undefined) {
      this.#chosenByClient.delete(client);
      return;
    }
    this.#check(mode);
    this.#chosenByClient.set(client, mode);
  }

  /** Forgets what was chosen for a client that has left. */
  forget(client: string): void {
    this.#chosenByClient.delete(client);
  }

  /**
   * The modes that limit a client. A mode of its URL or its token that the manifest does not have any more shows nothing:
   * otherwise the client would see more than it may.
   */
  selectionFor(client: string | undefined, limits: ClientLimits): ModeSelection {
    const { hasOperatorMode, principal } = limits;
    const names = new Set(limits.modes());
    if (hasOperatorMode) {
      names.add(this.chosenFor(client, principal));
      if (this.#commandLine !== undefined) names.add(this.#commandLine);
    }
    names.delete(FULL_MODE);
    if (names.size === 0) return NO_SELECTION;
    const known = this.#specs.filter(({ name }) => names.has(name));
    const gone = [...names].filter((name) => this.find(name) === undefined);
    const modes = [...known, ...gone.map(goneMode)];
    const key = modes
      .map(({ name }) => name)
      .toSorted()
      .join(" ");
    const made = this.#selections.get(key);
    if (made !== undefined) return made;
    const selection: ModeSelection = { key, modes, filter: allOf(modes.map(filterOf)) };
    this.#selections.set(key, selection);
    return selection;
  }

  /** The selection of one mode. @throws {HubError} usage if there is no such mode */
  selectionOf(name: string): ModeSelection {
    if (this.find(name) === undefined) this.#check(name);
    return this.selectionFor(undefined, { modes: () => [name], hasOperatorMode: false });
  }

  /** Why a mode cannot be used, as a sentence; undefined if it can. */
  fault(mode: string): string | undefined {
    return describeModeFault(mode, this.#specs);
  }

  #has(mode: string): boolean {
    return this.fault(mode) === undefined;
  }

  #check(mode: string): void {
    const fault = this.fault(mode);
    if (fault !== undefined) throw new HubError("usage", fault);
  }
}

/** Stands for a mode that the manifest does not have any more: it shows nothing. */
function goneMode(name: string): ModeSpec {
  const nothing = { or: [] };
  return {
    name,
    title: name,
    tools: nothing,
    prompts: nothing,
    resources: nothing,
    problems: [],
  };
}

/** The mode of a selection that hides an entry; undefined if none does. */
export function hidingMode(
  { modes }: Pick<ModeSelection, "modes">,
  kind: Kind,
  item: FilterItem,
): ModeSpec | undefined {
  return modes.find((mode) => !matcherOf(filterOf(mode), kind)(item));
}

const compiled = new WeakMap<ModeSpec, CatalogFilter>();

function filterOf(mode: ModeSpec): CatalogFilter {
  let filter = compiled.get(mode);
  if (filter === undefined) compiled.set(mode, (filter = compileMode(mode)));
  return filter;
}
