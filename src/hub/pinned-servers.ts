import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { EventBus } from "../base/hub-events.ts";
import type { PinFileContent } from "../manifest/pin-file.ts";
import type { PinLevel } from "../manifest/manifest.ts";
import { type Definition, keyOf, sourcesOf } from "../pins/definitions.ts";
import { pinLevelOf } from "../pins/level.ts";
import {
  type DescribedDefinition,
  type PendingDefinition,
  pendingOf,
  type PinnedServer,
  type Pins,
  type Review,
} from "../pins/pins.ts";
import type { Connection } from "../upstream/connection.ts";
import type { ServerPool } from "../upstream/pool.ts";

/** What a server lists that is not accepted. */
export interface ServerPins {
  readonly server: string;
  readonly level: PinLevel;
  /** Whether the server was listed and compared. */
  readonly isCompared: boolean;
  /** Why nothing could be compared, as a sentence; undefined: all was compared. */
  readonly fault: string | undefined;
  readonly pending: readonly DescribedDefinition[];
}

/** Which definitions of a server to accept. */
export type PinChoice =
  | "all"
  | readonly {
      readonly name: string;
      /** Undefined: tools and prompts of the name. Instructions have the name "". */
      readonly kind?: PendingDefinition["kind"] | undefined;
      /** The digest of the version that the person has seen; undefined: whatever is listed now. */
      readonly digest?: string | undefined;
    }[];

/** How often the store is looked at for changes of other processes while something is pending, in ms. */
const POLL_INTERVAL = 1500;

export interface PinnedServersOptions {
  readonly pins: Pins;
  readonly pool: ServerPool;
  readonly bus: EventBus;
  readonly clock: Clock;
}

/** The definitions of a hub's servers that are not accepted, and the ways to accept them. */
export class PinnedServers {
  readonly #options: PinnedServersOptions;
  #cancelPoll: (() => void) | undefined;
  readonly #unsubscribe: () => void;
  /** The version of the store when it was last looked at; undefined: not known. */
  #version: string | undefined;

  constructor(options: PinnedServersOptions) {
    this.#options = options;
    this.#unsubscribe = options.bus.subscribe(() => this.#schedulePoll(), ["pins"]);
  }

  /** All servers, or one. @throws {HubError} usage if there is no such server */
  async list(server?: string): Promise<readonly ServerPins[]> {
    const { pool } = this.#options;
    const specs = pool.specs.filter(({ name }) => server === undefined || name === server);
    if (specs.length === 0 && server !== undefined) pool.connectionsOf(server);
    await Promise.all(specs.map(({ name }) => this.#reviewed(name)));
    return Promise.all(specs.map(({ name }) => this.#pinsOf(name)));
  }

  /** The number of pending definitions of a server. */
  pendingCount(server: string): number {
    const keys = this.#reviewsOf(server).flatMap(({ review }) =>
      pendingOf(review).map((each) => `${keyOf(each)}\n${each.digest}`),
    );
    return new Set(keys).size;
  }

  async #pinsOf(name: string): Promise<ServerPins> {
    const reviews = this.#reviewsOf(name);
    const pending = new Map<string, DescribedDefinition>();
    for (const { server, review } of reviews) {
      for (const each of await this.#options.pins.describe(server, review))
        pending.set(`${keyOf(each)}\n${each.digest}`, each);
    }
    const spec = this.#options.pool.specs.find((each) => each.name === name);
    return {
      server: name,
      level: spec === undefined ? "off" : pinLevelOf(spec),
      isCompared: reviews.length > 0,
      fault: reviews.find(({ review }) => review.fault !== undefined)?.review.fault,
      pending: [...pending.values()],
    };
  }

  /** Waits until what a server lists is compared: where pins do not block, that is done beside its use. */
  async #reviewed(name: string): Promise<void> {
    await Promise.all(this.#options.pool.connectionsOf(name).map(({ reviewed }) => reviewed));
  }

  #reviewsOf(name: string): readonly { readonly server: PinnedServer; readonly review: Review }[] {
    return this.#options.pool.connectionsOf(name).flatMap((connection) => {
      const review = connection.known?.review;
      return review === undefined ? [] : [{ server: serverOf(connection), review }];
    });
  }

  /**
   * Accepts definitions of a server as it lists them now.
   * @returns what was accepted
   * @throws {HubError} usage if there is no such server; notFound if nothing of a name is pending; conflict if it has
   * changed since the person has seen it; storeBroken or storeBusy
   */
  async accept(name: string, choice: PinChoice): Promise<readonly Definition[]> {
    await this.#reviewed(name);
    const reviews = this.#reviewsOf(name);
    const pending = reviews.flatMap(({ review }) => pendingOf(review));
    if (choice !== "all") checkChoice(name, choice, pending);
    const byName = choice === "all" ? undefined : Map.groupBy(choice, (chosen) => chosen.name);
    const isChosen = (each: PendingDefinition): boolean =>
      byName === undefined ||
      byName
        .get(each.name)
        ?.some(
          (chosen) =>
            isNamed(chosen, each) && (chosen.digest === undefined || chosen.digest === each.digest),
        ) === true;
    const accepted = await this.#options.pins.accept(reviews, isChosen);
    await this.reviewAgain(name);
    return accepted;
  }

  /**
   * Forgets what was accepted of a server: what it lists now becomes its baseline.
   * @returns whether something was known
   * @throws {HubError} usage if there is no such server; storeBroken or storeBusy
   */
  async forget(name: string): Promise<boolean> {
    const connections = this.#options.pool.connectionsOf(name);
    const isFound = await this.#options.pins.forget(name, connections.map(serverOf));
    await this.reviewAgain(name);
    return isFound;
  }

  /** All definitions that a server lists, accepted or not; undefined if it is not listed, or cannot run. */
  definitionsOf(name: string): readonly Definition[] | undefined {
    if (this.#options.pool.specs.every((spec) => spec.name !== name)) return undefined;
    const listings = this.#options.pool
      .connectionsOf(name)
      .flatMap(({ known }) => known?.listing ?? []);
    if (listings.length === 0) return undefined;
    return listings.flatMap((listing) =>
      sourcesOf(listing).map((source) => this.#options.pins.definitionOf(source)),
    );
  }

  /** Uses another pin file. */
  async setPinFile(content: PinFileContent | undefined): Promise<void> {
    const { pins } = this.#options;
    if (JSON.stringify(toPlain(pins.pinFile)) === JSON.stringify(toPlain(content))) return;
    pins.pinFile = content;
    await this.reviewAgain();
  }

  /** Compares again what a server lists, or what all servers list. */
  async reviewAgain(name?: string): Promise<void> {
    const { pool } = this.#options;
    const names = name === undefined ? pool.specs.map((spec) => spec.name) : [name];
    const connections = names.flatMap((each) => pool.connectionsOf(each));
    await Promise.all(
      connections.filter(({ known }) => known !== undefined).map((each) => each.reviewAgain()),
    );
  }

  close(): void {
    this.#unsubscribe();
    this.#cancelPoll?.();
  }

  /** Looks regularly whether another process has accepted something, as long as something is pending. */
  #schedulePoll(): void {
    if (this.#cancelPoll !== undefined) return;
    this.#cancelPoll = this.#options.clock.after(POLL_INTERVAL, () => {
      this.#cancelPoll = undefined;
      void this.#poll();
    });
  }

  async #poll(): Promise<void> {
    const names = this.#options.pool.specs
      .map(({ name }) => name)
      .filter((name) =>
        this.#reviewsOf(name).some(
          ({ review }) => pendingOf(review).length > 0 || review.fault !== undefined,
        ),
      );
    if (names.length === 0) return;
    const version = await (await this.#options.pins.store).version().catch(() => undefined);
    if (version !== this.#version) {
      this.#version = version;
      await Promise.all(names.map((name) => this.reviewAgain(name)));
    }
    this.#schedulePoll();
  }
}

function toPlain(content: PinFileContent | undefined): unknown {
  if (content === undefined || !("servers" in content)) return content;
  return [...content.servers].map(([server, digests]) => [server, [...digests]]);
}

function serverOf(connection: Connection): PinnedServer {
  const { spec, origin, peer } = connection;
  return { spec, origin, peer, connection: connection.status.id };
}

function isNamed(
  { name, kind }: Exclude<PinChoice, "all">[number],
  definition: Definition,
): boolean {
  return name === definition.name && (kind === undefined || kind === definition.kind);
}

/** @throws {HubError} notFound or conflict */
function checkChoice(
  server: string,
  choice: Exclude<PinChoice, "all">,
  pending: readonly PendingDefinition[],
): void {
  const byName = Map.groupBy(pending, ({ name }) => name);
  for (const chosen of choice) {
    const named = byName.get(chosen.name)?.filter((each) => isNamed(chosen, each)) ?? [];
    const what = chosen.name === "" ? "the instructions" : JSON.stringify(chosen.name);
    if (named.length > 0 && named.every(({ reason }) => reason === "pinFile")) {
      const text = `${what} of server "${server}" is accepted, but not as the pin file has it. To write that anew: toolmux pins export`;
      throw new HubError("conflict", text, { server });
    }
    if (named.length === 0) {
      const text = `Nothing of ${what} of server "${server}" waits to be accepted.`;
      throw new HubError("notFound", text, { server });
    }
    const { digest } = chosen;
    if (digest !== undefined && named.every((each) => each.digest !== digest)) {
      const text = `Server "${server}" has changed ${what} again. Look at it, then accept it.`;
      throw new HubError("conflict", text, { server });
    }
  }
}
