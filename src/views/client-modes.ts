import {
  allOf,
  type CatalogFilter,
  compileMode,
  type FilterItem,
  matcherOf,
} from "../catalog/filter.ts";
import type { Kind } from "../catalog/listing.ts";
import type { MinimumApproval } from "../approval/policy.ts";
import { HubError } from "../base/errors.ts";
import { describeModeFault, FULL_ACCESS, type ModeSpec } from "../manifest/modes.ts";
import type { ServerSubset } from "../upstream/profile.ts";
import type { Exposure } from "../manifest/exposures.ts";
import { FULL_MODE } from "../manifest/manifest.ts";

/** The id that stands for all clients that cannot be told apart. */
export const ANONYMOUS_CLIENTS = "anybody";

/** The limits of a client, without the mode that the operator chooses for it. */
export interface ClientLimits {
  /**
   * Names of modes. The client sees only items that all of these modes show. The names may change with the manifest.
   */
  modes(): readonly string[];
  /**
   * Whether `hub.mode`, or the operator's mode in its place, also limits the client. False for the operator's clients.
   */
  readonly hasOperatorMode: boolean;
  /** The client's name in the manifest, if it has its own token there. */
  readonly principal?: string | undefined;
  /**
   * The servers that the client's token allows, also to agents that the client starts; absent: all. They may change with
   * the manifest.
   */
  readonly servers?: (() => ServerSubset) | undefined;
  /**
   * The exposure that the client's URL or its table in the manifest names; it may change with the manifest. It limits
   * nothing. Absent: the client gets all tools in one list, like plugins, commands and the operator.
   */
  readonly expose?: (() => Exposure | undefined) | undefined;
  /** The minimum level of approvals of the client's calls. It can only raise other settings; absent: none. */
  readonly approval?: MinimumApproval | undefined;
  /** Whether the client itself may be asked to allow its calls; absent: yes, if it can be asked. */
  readonly isAskedForApproval?: boolean | undefined;
}

/** The limits of plugins, commands and the operator: none. */
export const NO_LIMITS: ClientLimits = { modes: () => [], hasOperatorMode: false };

/** The modes that together limit a client. Equal modes give the same object until the manifest changes. */
export interface ModeSelection {
  /** Equal selections have equal keys. An empty key means that nothing is hidden. */
  readonly key: string;
  /** The modes, sorted, without `full`. */
  readonly modes: readonly ModeSpec[];
  /** The common filter of the modes; undefined: nothing is hidden. */
  readonly filter: CatalogFilter | undefined;
}

const NO_SELECTION: ModeSelection = { key: "", modes: [], filter: undefined };

/** A choice of the operator that was undone, because the mode is missing or faulty in the new manifest. */
export interface UndoneChoice {
  /** The client of the choice; undefined: the choice was for all clients. */
  readonly client: string | undefined;
  readonly mode: string;
}

/**
 * The modes of the manifest, and the operator's choices among them: `hub.mode`, or another mode in its place, for all
 * clients; and other modes for single clients. A client sees only items that all of its modes show. So a mode that the
 * client's URL or token names can only hide items; to show more, the operator must choose another mode.
 */
export class Modes {
  #specs: readonly ModeSpec[] = [];
  #default = FULL_MODE;
  /** The operator's choice for all clients; undefined: `hub.mode`. */
  #chosen: string | undefined;
  /** The operator's choices for single clients, by client id or by the client's name in the manifest. */
  readonly #chosenByClient = new Map<string, string>();
  readonly #selections = new Map<string, ModeSelection>();
  /** The mode of `serve --mode`, which also limits all clients that have the operator's mode; undefined: none. */
  readonly #commandLine: string | undefined;

  /** @param commandLine the mode of `serve --mode` */
  constructor(commandLine?: string) {
    this.#commandLine = commandLine;
  }

  /** Adopts the modes of a new manifest. @returns the choices of the operator that had to be undone */
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

  /** The operator's mode for all clients without an individual choice. */
  get current(): string {
    return this.#chosen ?? this.#default;
  }

  /** The mode of `hub.mode` in the manifest. */
  get default(): string {
    return this.#default;
  }

  find(name: string): ModeSpec | undefined {
    return this.all.find((mode) => mode.name === name);
  }

  /** The operator's mode for a client. */
  chosenFor(client: string | undefined, principal?: string): string {
    if (this.#chosenByClient.size === 0) return this.current;
    const own = this.#chosenByClient.get(client ?? ANONYMOUS_CLIENTS);
    const ofPrincipal = principal === undefined ? undefined : this.#chosenByClient.get(principal);
    return own ?? ofPrincipal ?? this.current;
  }

  /**
   * Chooses the operator's mode for all clients without an individual choice.
   * @param mode undefined: `hub.mode`
   * @throws {HubError} usage
   */
  choose(mode: string | undefined): void {
    if (mode !== undefined) this.#check(mode);
    this.#chosen = mode;
  }

  /** Chooses the operator's mode for one client; undefined: the mode for all clients. @throws {HubError} usage */
  chooseFor(client: string, mode: string | undefined): void {
    if (mode === undefined) {
      this.#chosenByClient.delete(client);
      return;
    }
    this.#check(mode);
    this.#chosenByClient.set(client, mode);
  }

  /** Forgets the choice for a client that has left. */
  forget(client: string): void {
    this.#chosenByClient.delete(client);
  }

  /**
   * The modes that limit a client. If the client's URL or token names a mode that is no longer in the manifest, that
   * mode shows nothing: otherwise the client would see more than it may.
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

  /** The reason why a mode cannot be used, as a sentence; undefined if it can be used. */
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

/** A mode that shows nothing. It replaces a mode that is no longer in the manifest. */
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

/** Returns the first of the selected modes that hides an entry; undefined if none of them hides it. */
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
