/**
 * pins/: which definitions of servers count as accepted. `definitions.ts` says what is pinned and how two versions
 * differ, `baseline.ts` compares a listing with what was accepted, `store.ts` and `disk.ts` keep that. Main type:
 * `Pins`, below. Start here with `review`: `upstream/listing.ts` calls it for each new listing, and shows clients what
 * it returns.
 */
import type { Alerts } from "../base/alerts.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type { EventBus } from "../base/hub-events.ts";
import { escapeDeceptive, escapeInvisible } from "../base/escape.ts";
import { isTurnOver, nextTurn } from "../base/turns.ts";
import { EMPTY_LISTING, type ListedItem, type ServerListing } from "../catalog/listing.ts";
import { changeLines } from "../catalog/tool-diff.ts";
import type { Sha256 } from "../catalog/names.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import type { PinFileContent, PinnedKind } from "../manifest/pin-file.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import {
  type AcceptedDefinition,
  type AcceptedDigests,
  type Baseline,
  MAX_PARTS_SIZE,
  type PendingReason,
  reviewDefinitions,
  type ReviewResult,
  withAccepted,
} from "./baseline.ts";
import {
  type Definition,
  definitionOf,
  type DefinitionSource,
  type DifferingSource,
  differingSourcesOf,
  keyOf,
  type PartChange,
  partChangesOf,
  partsOf,
  sizeOf,
  sourcesByKey,
  sourcesOf,
} from "./definitions.ts";
import { MAX_NAMES, nameOf, pinLevelOf } from "./level.ts";
import { type BaselineStore, damagedBaseline, memoryBaselines } from "./store.ts";

/** A server, as it was filled in for the clients of one connection. */
export interface PinnedServer {
  readonly spec: RunnableServer;
  /** The client whose values fill in its specification; undefined: the hub's own environment. */
  readonly origin: ClientOrigin | undefined;
  /** The key of the connection. */
  readonly connection: string;
  /** The server's name and version, if it has told them. */
  readonly peer: string | undefined;
}

export interface PinsOptions {
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly sha256: Sha256;
  /** Opens the store of baselines; undefined: they are kept in memory only. */
  readonly openStore: (() => Promise<BaselineStore>) | undefined;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /**
   * A server's identity as text, equal in all processes; undefined if a value that it needs is not available. Never
   * rejects.
   */
  identityOf(server: Pick<PinnedServer, "spec" | "origin">): Promise<string | undefined>;
  /**
   * Returns those of the tools, prompts and instructions in which a scan has a hard finding: a person alone accepts
   * them. It is asked only about what is not known yet, or was not scanned. Absent: there is no scan. Never rejects.
   * @param isOver whether nobody needs the result any more
   * @returns undefined if the server's definitions are not scanned
   */
  readonly findSuspicious?:
    | ((
        spec: RunnableServer,
        sources: readonly DefinitionSource[],
        isOver: () => boolean,
      ) => Promise<ReadonlySet<DefinitionSource> | undefined>)
    | undefined;
}

/** A definition that is not accepted. */
export interface PendingDefinition extends Definition {
  readonly reason: PendingReason;
}

/** A definition that is not accepted, of machines whose server does not define it as it is listed. */
export interface DifferingDefinition extends PendingDefinition {
  readonly machines: readonly string[];
  readonly source: DefinitionSource;
}

/** The result of the comparison of a listing with what was accepted. */
export interface Review {
  /** The listing that was compared. */
  readonly listing: ServerListing;
  /** The same without what is pending. */
  readonly accepted: ServerListing;
  /** The tools and prompts that `accepted` lacks; undefined if there are none. */
  readonly withheld: ServerListing | undefined;
  readonly pending: ReadonlyMap<string, PendingDefinition>;
  /** What only some machines with the server define so: it is not listed, and so withheld from nobody. */
  readonly differing: readonly DifferingDefinition[];
  /**
   * Why nothing of the server counts as accepted: it could not be compared, or the pin file cannot be used. Undefined: all
   * was compared.
   */
  readonly fault: string | undefined;
  /** Set if the server cannot be recognized later, so that nothing was compared, and nothing is pending. */
  readonly isUncompared?: true;
}

/** A pending definition, for people. All texts have secrets removed and invisible characters escaped. */
export interface DescribedDefinition extends PendingDefinition {
  /** When the accepted definition was seen first, or accepted, in ms since the epoch; undefined if there is none. */
  readonly acceptedAt: number | undefined;
  /** The server's name and version then, and now. */
  readonly peerThen: string | undefined;
  readonly peerNow: string | undefined;
  /** What has changed, by parts; all parts if there is no accepted definition, or it was too large to be kept. */
  readonly parts: readonly PartChange[];
  /** The machines whose server defines it so, if others have what is listed. */
  readonly machines?: readonly string[] | undefined;
}

/** All definitions that are not accepted. */
export function pendingOf({ pending, differing }: Review): readonly PendingDefinition[] {
  return [...pending.values(), ...differing];
}

/** Maximum length of an alert's text, and of the part about one definition, in UTF-16 units. */
const MAX_ALERT = 4000;
const MAX_ALERT_ENTRY = 600;

/** What changes again within this time keeps changing, in ms. Then only its first change is logged. */
const REPEAT_PERIOD = 10 * 60_000;

/** Compares what servers list with what was accepted, and accepts it. */
export class Pins {
  /** The pin file; undefined: the manifest has none. */
  pinFile: PinFileContent | undefined;
  readonly #options: PinsOptions;
  #store: Promise<BaselineStore> | undefined;
  /** The last review of each listing, and of the part of it that was accepted. */
  readonly #reviews = new WeakMap<ServerListing, Review>();
  /** What was reported last of each connection, by server and connection. */
  readonly #reported = new Map<string, string>();
  /** The last changes by server: when, in ms since the epoch, and what has changed without a long break. */
  readonly #lastChanges = new Map<
    string,
    { readonly at: number; readonly keys: ReadonlySet<string> }
  >();

  constructor(options: PinsOptions) {
    this.#options = options;
  }

  get store(): Promise<BaselineStore> {
    this.#store ??= this.#options.openStore?.() ?? Promise.resolve(memoryBaselines());
    return this.#store;
  }

  /**
   * Compares a listing with what was accepted. What is listed first becomes the baseline. Never rejects.
   * @param isOver whether nobody needs the result any more
   */
  async review(
    server: PinnedServer,
    listing: ServerListing,
    isOver: () => boolean,
  ): Promise<Review> {
    if (isTurnOver()) await nextTurn();
    const sources = sourcesByKey(listing);
    const nothing = (fault: string): Review => ({
      listing,
      ...split(listing, () => true),
      pending: new Map(),
      differing: [],
      fault,
    });
    const all = { accepted: listing, withheld: undefined };
    const { pinFile } = this;
    const file = pinFile === undefined || "unusable" in pinFile ? undefined : pinFile;
    let review: Review;
    try {
      const definitions = await this.#definitionsOf([...sources.values()], isOver);
      if (isOver()) return nothing("The connection has ended.");
      const result = await this.#compare(server, file, sources, definitions, isOver);
      if ("fault" in result) return nothing(result.fault);
      const { pending } = result;
      if (isTurnOver()) await nextTurn();
      const byKey = new Map(pending.map((each) => [keyOf(each), each]));
      const parts = byKey.size === 0 ? all : split(listing, (key) => byKey.has(key));
      const differing = await this.#differingOf(server, listing, isOver);
      // The file is written only when all is accepted, so what is pending must be known without it, too.
      review =
        pinFile !== undefined && "unusable" in pinFile
          ? { ...nothing(pinFile.unusable), pending: byKey, differing }
          : { listing, ...parts, pending: byKey, differing, fault: undefined };
    } catch (thrown) {
      // Where nothing can be stored there is no baseline, and nobody has asked for more than to be warned of changes.
      review =
        pinLevelOf(server.spec) === "block"
          ? nothing(toHubError(thrown).message)
          : { ...nothing(""), ...all, fault: undefined, isUncompared: true };
    }
    return review;
  }

  /** What other machines define otherwise than it is listed, and otherwise than it was accepted. */
  async #differingOf(
    server: PinnedServer,
    listing: ServerListing,
    isOver: () => boolean,
  ): Promise<readonly DifferingDefinition[]> {
    const all = differingSourcesOf(listing);
    if (all.length === 0) return [];
    const definitions = await this.#definitionsOf(
      all.map(({ source }) => source),
      isOver,
    );
    const accepted = await (await this.store).digests(await this.#keyOf(server));
    const differing = new Map<string, DifferingDefinition>();
    for (const [i, definition] of definitions.entries()) {
      const { source, machines } = all[i] as DifferingSource;
      const known = typeof accepted === "string" ? undefined : accepted.get(keyOf(definition));
      if (known?.has(definition.digest) === true) continue;
      const key = `${keyOf(definition)}\n${definition.digest}`;
      const names = [...(differing.get(key)?.machines ?? []), ...machines];
      const reason = known === undefined ? "new" : "changed";
      differing.set(key, { ...definition, reason, source, machines: names });
    }
    return [...differing.values()];
  }

  definitionOf(source: DefinitionSource): Definition {
    return definitionOf(source, this.#options.sha256);
  }

  async #definitionsOf(
    sources: readonly DefinitionSource[],
    isOver: () => boolean,
  ): Promise<readonly Definition[]> {
    const definitions: Definition[] = [];
    for (const source of sources) {
      if (isTurnOver()) {
        await nextTurn();
        if (isOver()) break;
      }
      definitions.push(this.definitionOf(source));
    }
    return definitions;
  }

  async #compare(
    { spec, origin, peer }: PinnedServer,
    file: Exclude<PinFileContent, { readonly unusable: string }> | undefined,
    sources: ReadonlyMap<string, DefinitionSource>,
    definitions: readonly Definition[],
    isOver: () => boolean,
  ): Promise<ReviewResult | { readonly fault: string }> {
    const key = await this.#keyOf({ spec, origin });
    const store = await this.store;
    const read = await store.digests(key);
    if (read === "damaged") return { fault: damagedBaseline(spec.name).message };
    const known = read === "none" ? undefined : read;
    let suspicious: ReadonlySet<DefinitionSource> | undefined = new Set();
    const compare = async (accepted: AcceptedDigests | undefined): Promise<ReviewResult> => {
      if (isTurnOver()) await nextTurn();
      return reviewDefinitions(definitions, {
        accepted,
        pinned: file?.servers.get(spec.name),
        acceptsNew: pinLevelOf(spec) !== "block",
        hasHardFinding: (definition) => {
          const source = sources.get(keyOf(definition));
          return source !== undefined && suspicious?.has(source) === true;
        },
      });
    };
    let result = await compare(known);
    const { findSuspicious } = this.#options;
    const unknown = [
      ...result.added,
      ...result.pending.filter(({ reason }) => reason === "new"),
      ...definitions.filter((each) => known?.get(keyOf(each))?.get(each.digest) === false),
    ];
    if (findSuspicious !== undefined && unknown.length > 0) {
      const scanned = unknown.flatMap((definition) => sources.get(keyOf(definition)) ?? []);
      suspicious = await findSuspicious(spec, scanned, isOver);
      result = await compare(known);
    }
    // A baseline is also made of a server that lists nothing: what it lists later is new.
    if (result.added.length === 0 && read !== "none") return result;
    const at = Date.now();
    let room = MAX_PARTS_SIZE;
    const added: AcceptedDefinition[] = [];
    for (const definition of result.added) {
      if (isTurnOver()) await nextTurn();
      const source = sources.get(keyOf(definition));
      // Parts that are too large to be kept are not made.
      room -= source === undefined ? 0 : sizeOf(source);
      added.push({
        ...definition,
        at,
        ...(peer !== undefined && { peer }),
        ...(source && room >= 0 && { parts: partsOf(source) }),
        ...(suspicious === undefined && { isUnscanned: true }),
      });
    }
    await store.update(key, (before) => {
      if (before === "damaged") throw damagedBaseline(spec.name);
      // Another hub may have seen the server first: only what it has not seen is added, and for `block` nothing.
      if (before === "none") return withAccepted(emptyBaseline(spec), added, () => false);
      if (read === "none" && pinLevelOf(spec) === "block") return before;
      const seen = new Set(before.accepted.map(keyOf));
      const more = added.filter((each) => !seen.has(keyOf(each)));
      return withAccepted(before, more, () => false);
    });
    const now = await store.digests(key);
    if (typeof now === "string") return { fault: damagedBaseline(spec.name).message };
    return compare(now);
  }

  /** @throws {HubError} storeBroken or valueMissing if the server cannot be recognized later */
  async #keyOf({ spec, origin }: Pick<PinnedServer, "spec" | "origin">): Promise<string> {
    const identity = await this.#options.identityOf({ spec, origin });
    if (identity === undefined) {
      const text = `Server "${spec.name}" cannot be compared with what was accepted: a value that it needs is missing.`;
      throw new HubError("valueMissing", text, { server: spec.name });
    }
    const store = await this.store;
    return store.keyOf(identity, spec.name).catch((error: unknown) => {
      const text = `What was accepted of server "${spec.name}" cannot be looked up: ${toHubError(error).message}`;
      throw new HubError("storeBroken", text, { server: spec.name });
    });
  }

  /**
   * Whether a tool, a prompt or the instructions (whose name does not matter) of a listing count as accepted; undefined
   * if the listing was not compared.
   */
  isAccepted(listing: ServerListing, kind: PinnedKind, name: string): boolean | undefined {
    const review = this.#reviews.get(listing);
    if (review === undefined) return undefined;
    if (review.fault !== undefined || review.isUncompared === true) return false;
    return !review.pending.has(keyOf({ kind, name: kind === "instructions" ? "" : name }));
  }

  /**
   * The definitions of a connection that are not accepted, for people, in the order of the listing; then those that
   * only some machines have.
   * @param chosen those to describe
   */
  async describe(
    server: PinnedServer,
    review: Review,
    { pending, differing }: Pick<Review, "pending" | "differing"> = review,
  ): Promise<readonly DescribedDefinition[]> {
    if (pending.size === 0 && differing.length === 0) return [];
    const baseline = await this.#baselineOf(server);
    const accepted = Map.groupBy(baseline?.accepted ?? [], keyOf);
    const described: DescribedDefinition[] = [];
    for (const source of pending.size === 0 ? [] : sourcesOf(review.listing)) {
      const own = pending.get(keyOf(source));
      if (own === undefined) continue;
      if (isTurnOver()) await nextTurn();
      described.push(this.#describe(server, source, own, accepted.get(keyOf(own)) ?? []));
    }
    for (const { source, machines, ...own } of differing) {
      if (isTurnOver()) await nextTurn();
      described.push({
        ...this.#describe(server, source, own, accepted.get(keyOf(own)) ?? []),
        machines: machines.map(escapeDeceptive),
      });
    }
    return described;
  }

  async #baselineOf(server: PinnedServer): Promise<Baseline | undefined> {
    try {
      const baseline = await (await this.store).read(await this.#keyOf(server));
      return typeof baseline === "string" ? undefined : baseline;
    } catch {
      return undefined;
    }
  }

  #describe(
    { peer }: PinnedServer,
    source: DefinitionSource,
    pending: PendingDefinition,
    accepted: readonly AcceptedDefinition[],
  ): DescribedDefinition {
    const before = accepted.find(({ digest }) => digest === pending.digest) ?? accepted.at(-1);
    const redact = (text: string): string => this.#options.redact(text);
    const shown = (text: string | undefined): string | undefined =>
      text === undefined ? undefined : escapeInvisible(redact(text));
    const parts = partChangesOf(before?.parts, partsOf(source), redact);
    return {
      ...pending,
      acceptedAt: before?.at,
      peerThen: shown(before?.peer),
      peerNow: shown(peer),
      parts,
    };
  }

  /**
   * Accepts pending definitions of a server.
   * @param reviews the connections of the server, each with its last review
   * @param isChosen whether a definition is to be accepted
   * @returns the accepted definitions
   * @throws {HubError} storeBroken or storeBusy
   */
  async accept(
    reviews: readonly { readonly server: PinnedServer; readonly review: Review }[],
    isChosen: (definition: PendingDefinition) => boolean,
  ): Promise<readonly Definition[]> {
    const at = Date.now();
    const listed = new Map<string, Set<string>>();
    const chosen = new Map<
      string,
      { readonly spec: RunnableServer; readonly added: Map<string, AcceptedDefinition> }
    >();
    for (const { server, review } of reviews) {
      const { spec, peer } = server;
      const key = await this.#keyOf(server);
      const isDamaged = (await (await this.store).digests(key)) === "damaged";
      const own = chosen.get(key) ?? { spec, added: new Map<string, AcceptedDefinition>() };
      chosen.set(key, own);
      const digests = listed.get(key) ?? new Set();
      listed.set(key, digests);
      for (const source of sourcesOf(review.listing)) {
        if (isTurnOver()) await nextTurn();
        const definition = this.definitionOf(source);
        digests.add(definition.digest);
        // Nothing is known of a damaged baseline, so all that is listed is pending.
        const pending =
          review.pending.get(keyOf(definition)) ??
          (isDamaged ? ({ ...definition, reason: "new" } as const) : undefined);
        // What only the pin file refuses is accepted already.
        if (pending === undefined || pending.reason === "pinFile") continue;
        if (own.added.has(definition.digest) || !isChosen(pending)) continue;
        const parts = partsOf(source);
        const accepted = { ...definition, at, ...(peer !== undefined && { peer }), parts };
        own.added.set(definition.digest, accepted);
      }
      // What is accepted of one machine replaces nothing that another one has.
      for (const { source } of differingSourcesOf(review.listing))
        digests.add(this.definitionOf(source).digest);
      for (const pending of review.differing) {
        if (isTurnOver()) await nextTurn();
        const { kind, name, digest, source } = pending;
        if (own.added.has(digest) || !isChosen(pending)) continue;
        const parts = partsOf(source);
        const accepted = { kind, name, digest, at, ...(peer !== undefined && { peer }), parts };
        own.added.set(digest, accepted);
      }
    }
    const accepted: Definition[] = [];
    for (const [key, { spec, added: byDigest }] of chosen) {
      const added = [...byDigest.values()];
      if (added.length === 0) continue;
      const isListed = ({ digest }: Definition): boolean => listed.get(key)?.has(digest) === true;
      await (
        await this.store
      ).update(key, (before) =>
        withAccepted(typeof before === "string" ? emptyBaseline(spec) : before, added, isListed),
      );
      accepted.push(...added.map(({ kind, name, digest }) => ({ kind, name, digest })));
    }
    return accepted;
  }

  /**
   * Forgets what was accepted of a server: what it lists next becomes its baseline.
   * @param servers its present connections
   * @returns whether something was known
   * @throws {HubError} storeBroken or storeBusy
   */
  async forget(
    name: string,
    servers: readonly Pick<PinnedServer, "spec" | "origin">[],
  ): Promise<boolean> {
    const keys = await Promise.all(
      servers.map((server) => this.#keyOf(server).catch(() => undefined)),
    );
    return (await this.store).forget(
      name,
      keys.flatMap((key) => key ?? []),
    );
  }

  /** Takes back what was reported of a connection that has ended, or whose server is compared no more. */
  end(server: string, connection: string): void {
    if (!this.#reported.delete(`${server}\n${connection}`)) return;
    this.#options.alerts.clear(server, ["toolsChanged"], connection);
  }

  /**
   * Raises or clears the alert about a connection, and emits an event if what is pending has changed. Called when the
   * review is in use. Never rejects.
   */
  async report(server: PinnedServer, review: Review): Promise<void> {
    this.#reviews.set(review.listing, review).set(review.accepted, review);
    const { spec, connection } = server;
    const { alerts, bus } = this.#options;
    const { fault } = review;
    const pending = pendingOf(review);
    const key = `${spec.name}\n${connection}`;
    // In any order: what differs on another machine is listed when the first machine leaves, and not told again.
    const texts = pending.map((each) => JSON.stringify([keyOf(each), each.digest, each.reason]));
    const state = JSON.stringify([fault ?? null, pinLevelOf(spec), ...new Set(texts.sort())]);
    const before = this.#reported.get(key);
    if (before === state) return;
    this.#reported.set(key, state);
    const isClean = pending.length === 0 && fault === undefined;
    // Before the alert, whose text takes time: who hears of it may look at once.
    if (before !== undefined || !isClean)
      bus.emit({ kind: "pins", server: spec.name, pending: pending.length });
    // The scan itself raises an alert about what it finds.
    const isChanged = pending.some(({ reason }) => reason !== "finding");
    if (!isChanged && fault === undefined) alerts.clear(spec.name, ["toolsChanged"], connection);
    else {
      const text = await this.#alertText(server, review);
      if (this.#reported.get(key) !== state) return;
      const isRepeated = this.#noteChange(spec.name, pending.map(keyOf));
      const again = isRepeated ? ({ repeated: true } as const) : {};
      alerts.raise({ kind: "toolsChanged", server: spec.name, text, ...again }, connection);
    }
  }

  /** Notes what has changed. @returns whether all of that has kept changing */
  #noteChange(server: string, keys: readonly string[]): boolean {
    const now = Date.now();
    const last = this.#lastChanges.get(server);
    const known =
      last !== undefined && now - last.at < REPEAT_PERIOD ? last.keys : new Set<string>();
    this.#lastChanges.set(server, { at: now, keys: new Set([...known, ...keys]) });
    return keys.length > 0 && keys.every((key) => known.has(key));
  }

  async #alertText(server: PinnedServer, review: Review): Promise<string> {
    const { spec } = server;
    const isBlocked = pinLevelOf(spec) === "block";
    if (review.fault !== undefined)
      return `${review.fault}${isBlocked ? ` So nothing of server "${spec.name}" is shown or called.` : ""}`;
    const isTold = ({ reason }: PendingDefinition): boolean => reason !== "finding";
    const listed = [...review.pending.values()].filter(isTold);
    const differing = review.differing.filter(isTold);
    const described = await this.describe(server, review, {
      pending: new Map(listed.slice(0, MAX_NAMES).map((each) => [keyOf(each), each])),
      differing: differing.slice(0, MAX_NAMES),
    });
    const sentences: string[] = [];
    if (listed.length > 0) {
      const isChange = listed.some(({ reason }) => reason !== "new");
      const verb = isChange ? "changed what it says of" : "has added";
      sentences.push(`Server "${spec.name}" ${verb} ${namesOf(listed)}.`);
    }
    if (differing.length > 0) {
      const machines = new Set(differing.flatMap((each) => each.machines));
      const where = [...machines].slice(0, MAX_NAMES).map((name) => `"${escapeDeceptive(name)}"`);
      const verb = machines.size === 1 ? "has" : "have";
      sentences.push(
        `Server "${spec.name}" is not the same on all machines: ${where.join(", ")} ${verb} another ${namesOf(differing)} than the machine whose list is used. Calls do not go there.`,
      );
    }
    const what = sentences.join(" ");
    const effect = isBlocked ? " What is not accepted is neither shown nor called." : "";
    const how = `To see and accept it: toolmux pins ${spec.name}`;
    const diffs = described.map((each) =>
      `${escapeDeceptive(each.name) || "instructions"}:\n${linesOf(each).join("\n")}`.slice(
        0,
        MAX_ALERT_ENTRY,
      ),
    );
    const end = `\n${how}`;
    const text = `${what}${effect}\n${diffs.join("\n")}`;
    return this.#options.redact(text).slice(0, MAX_ALERT - end.length) + end;
  }
}

function namesOf(definitions: readonly Definition[]): string {
  const shown = definitions.slice(0, MAX_NAMES).map(nameOf).join(", ");
  const more = definitions.length - MAX_NAMES;
  return more > 0 ? `${shown} and ${more} more` : shown;
}

function emptyBaseline({ name }: RunnableServer): Baseline {
  return { server: name, accepted: [] };
}

/** The lines that show what has changed: `- ` the old value, `+ ` the new one, after the path of the value. */
export function linesOf({
  reason,
  parts,
}: Pick<DescribedDefinition, "reason" | "parts">): readonly string[] {
  if (reason === "pinFile" && parts.length === 0) return ["It differs from the pin file."];
  return parts.flatMap(({ changes, omitted }) => [
    ...changes.flatMap(changeLines),
    ...(omitted > 0 ? [`… and ${omitted} more`] : []),
  ]);
}

/** The listing without the tools, prompts and instructions that are pending, and those tools and prompts. */
function split(
  listing: ServerListing,
  isPending: (key: string) => boolean,
): Pick<Review, "accepted" | "withheld"> {
  const isTool = ({ key }: ListedItem): boolean => isPending(keyOf({ kind: "tool", name: key }));
  const isPrompt = ({ key }: ListedItem): boolean =>
    isPending(keyOf({ kind: "prompt", name: key }));
  const hasInstructions = !isPending(keyOf({ kind: "instructions", name: "" }));
  const withheld = {
    ...EMPTY_LISTING,
    tools: listing.tools.filter(isTool),
    prompts: listing.prompts.filter(isPrompt),
  };
  return {
    accepted: {
      ...listing,
      tools: listing.tools.filter((item) => !isTool(item)),
      prompts: listing.prompts.filter((item) => !isPrompt(item)),
      instructions: hasInstructions ? listing.instructions : undefined,
    },
    withheld: withheld.tools.length + withheld.prompts.length === 0 ? undefined : withheld,
  };
}
