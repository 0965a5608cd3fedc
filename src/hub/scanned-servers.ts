import { Buffer } from "node:buffer";
import { setTimeout } from "node:timers";
import { utf8 } from "../base/bytes.ts";
import { settlesWithin } from "../base/clock.ts";
import { nextTurn } from "../base/turns.ts";
import type { Alerts } from "../base/alerts.ts";
import type { EventBus } from "../base/hub-events.ts";
import type { Sha256 } from "../catalog/names.ts";
import type { ListedItem, ServerListing } from "../catalog/listing.ts";
import type { RunnableServer, ScanLevel } from "../manifest/manifest.ts";
import {
  describePlace,
  type EntryFinding,
  findingsOf,
  type ScanContext,
  type ScannedKind,
} from "../scan/scan.ts";
import { pinLevelOf } from "../pins/level.ts";
import type { DefinitionSource } from "../pins/definitions.ts";
import { type ScannedSource, Scanner } from "../scan/scanner.ts";
import type { ServerPool } from "../upstream/pool.ts";

/** What the scan has found in a server's definitions. */
export interface ServerFindings {
  readonly server: string;
  readonly level: ScanLevel;
  /** Whether the server was listed and all of it is scanned. */
  readonly isScanned: boolean;
  /** Hard ones first. Texts of the server: not for models. */
  readonly findings: readonly EntryFinding[];
}

export interface ScannedServersOptions {
  readonly pool: ServerPool;
  readonly bus: EventBus;
  readonly alerts: Alerts;
  readonly sha256: Sha256;
  /** Whether an entry of a listing counts as accepted (pins); undefined if that was not compared. */
  isAccepted(listing: ServerListing, kind: ScannedKind, name: string): boolean | undefined;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /** Called when what is shown may have changed, because it is scanned now. */
  changed(): void;
}

/** The level of servers that set none. */
export const DEFAULT_SCAN_LEVEL: ScanLevel = "warn";

export function scanLevelOf({ scan }: RunnableServer): ScanLevel {
  return scan ?? DEFAULT_SCAN_LEVEL;
}

/** Maximum length of an alert's text, in UTF-16 units, and number of findings in it. */
const MAX_ALERT = 4000;
const MAX_ALERT_FINDINGS = 10;
/** Maximum number of findings that are kept of a server. */
const MAX_FINDINGS = 1000;

interface ScannedEntry extends ScannedSource {
  readonly kind: ScannedKind;
  readonly name: string;
}

/**
 * Scans what servers list, off the path of calls: after a listing has changed, in short turns. An entry that has not
 * changed is not scanned again. Under `block`, entries are scanned before they are shown.
 */
export class ScannedServers {
  readonly #options: ScannedServersOptions;
  readonly #scanner: Scanner;
  #isScanning = false;
  #isStale = false;
  #isClosed = false;
  #waiters: (() => void)[] = [];
  /** Ends the delay of a scan that has not begun; undefined: there is none. */
  #endDelay: (() => void) | undefined;
  /** What was found of each server, by its name; absent: not scanned yet. */
  readonly #found = new Map<string, readonly EntryFinding[]>();
  /** For a listing, the one without the entries that are hidden, and which these are. */
  readonly #shown = new WeakMap<
    ServerListing,
    { readonly hidden: string; readonly listing: ServerListing }
  >();
  readonly #sources = new WeakMap<ListedItem, ScannedEntry>();
  readonly #instructions = new Map<string, ScannedEntry>();
  /** The servers that show a tool of a name; undefined: to be looked up again. */
  #servers: ReadonlyMap<string, ReadonlySet<string>> | undefined;
  /** What is not shown because it is not scanned yet. */
  #awaited: ScannedEntry[] = [];

  constructor(options: ScannedServersOptions) {
    this.#options = options;
    const { sha256 } = options;
    this.#scanner = new Scanner((bytes) => Buffer.from(sha256(bytes)).toString("base64"));
  }

  /** Called when what servers list may have changed. */
  changed(): void {
    this.#isStale = true;
    this.#servers = undefined;
    if (this.#awaited.length > 0) this.#endDelay?.();
    if (this.#isScanning || this.#isClosed) return;
    this.#isScanning = true;
    void this.#scanAll();
  }

  /** Resolves when all that is listed now is scanned, or the hub is closing. */
  async settled(): Promise<void> {
    if (!this.#isScanning || this.#isClosed) return;
    this.#endDelay?.();
    await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  /** What was found in all servers, or in one, in the order of the manifest. */
  list(server?: string): readonly ServerFindings[] {
    const specs = this.#options.pool.specs.filter(
      ({ name }) => server === undefined || name === server,
    );
    return specs.map((spec) => ({
      server: spec.name,
      level: scanLevelOf(spec),
      isScanned: this.#found.has(spec.name),
      findings: this.#found.get(spec.name) ?? [],
    }));
  }

  /** Whether an entry has a hard finding that the manifest does not ignore; undefined: it is not scanned. */
  #isSuspicious(
    source: ScannedEntry,
    spec: RunnableServer,
    context: ScanContext,
  ): boolean | undefined {
    const examined = this.#scanner.examined(source);
    return (
      examined &&
      findingsOf(examined, context).some(
        ({ check, hard }) => hard && !isIgnored(spec, source.name, check),
      )
    );
  }

  /**
   * Scans what a server lists before clients see it. Never rejects.
   * @param isOver whether nobody needs the result any more
   * @returns undefined if clients may see it at once
   */
  examine(
    spec: RunnableServer,
    listing: Partial<ServerListing>,
    isOver: () => boolean,
  ): Promise<unknown> | undefined {
    if (scanLevelOf(spec) !== "block") return undefined;
    const isUnwanted = (): boolean => this.#isClosed || isOver();
    return this.#scanner.examineAll(this.#entriesIn(listing), nextTurn, isUnwanted);
  }

  /**
   * Those of a server's definitions that have a hard finding which the manifest does not ignore; undefined if they are
   * not scanned. Never rejects.
   * @param isOver whether nobody needs the result any more
   */
  async findSuspicious(
    spec: RunnableServer,
    sources: readonly DefinitionSource[],
    isOver: () => boolean,
  ): Promise<ReadonlySet<DefinitionSource> | undefined> {
    if (scanLevelOf(spec) === "off") return undefined;
    const scanned = sources.map((source): readonly [DefinitionSource, ScannedEntry] => [
      source,
      source.kind === "instructions"
        ? this.#instructionsOf(source.text)
        : this.#sourceOf(source.kind, source.item),
    ]);
    await this.#scanner.examineAll(
      scanned.map(([, entry]) => entry),
      nextTurn,
      () => this.#isClosed || isOver(),
    );
    const context = this.#contextOf(spec.name);
    const hard = scanned.filter(([, entry]) => this.#isSuspicious(entry, spec, context) !== false);
    return new Set(hard.map(([source]) => source));
  }

  /**
   * The listing of a server as clients may see it: under `block` without tools, prompts and instructions that have hard
   * findings, or are not scanned yet. The same object for the same listing, unless what is hidden changes.
   */
  shownListing(spec: RunnableServer, listing: ServerListing): ServerListing {
    if (scanLevelOf(spec) !== "block") return listing;
    const context = this.#contextOf(spec.name);
    const isHidden = (source: ScannedEntry): boolean => {
      if (this.#options.isAccepted(listing, source.kind, source.name) === true) return false;
      const isSuspicious = this.#isSuspicious(source, spec, context);
      if (isSuspicious === undefined) this.#awaited.push(source);
      return isSuspicious !== false;
    };
    const tools = listing.tools.filter((item) => !isHidden(this.#sourceOf("tool", item)));
    const prompts = listing.prompts.filter((item) => !isHidden(this.#sourceOf("prompt", item)));
    const { instructions } = listing;
    const hidesInstructions =
      instructions !== undefined && isHidden(this.#instructionsOf(instructions));
    const shown = new Set([...tools, ...prompts]);
    const hidden = JSON.stringify([
      hidesInstructions,
      [...listing.tools, ...listing.prompts].flatMap((item) => (shown.has(item) ? [] : item.key)),
    ]);
    const known = this.#shown.get(listing);
    if (known?.hidden === hidden) return known.listing;
    const isWhole = hidden === WHOLE;
    const result: ServerListing = isWhole
      ? listing
      : { ...listing, tools, prompts, ...(hidesInstructions && { instructions: undefined }) };
    this.#shown.set(listing, { hidden, listing: result });
    if (this.#awaited.length > 0) this.changed();
    return result;
  }

  close(): void {
    this.#isClosed = true;
    this.#endDelay?.();
    this.#settle();
  }

  async #scanAll(): Promise<void> {
    try {
      if (this.#awaited.length === 0) await this.#delay();
      await nextTurn();
      let passes = 0;
      while (this.#isStale && !this.#isClosed) {
        this.#isStale = false;
        // Half of the calls or more must meet no turn; who waits for the result wants it soon.
        const pause = (): Promise<void> => (this.#waiters.length > 0 ? nextTurn() : rest());
        const suspects = new Map<string, readonly ScannedEntry[]>();
        for (const spec of this.#options.pool.specs) {
          const entries = scanLevelOf(spec) === "off" ? undefined : this.#entriesOf(spec.name);
          if (entries === undefined) continue;
          const found = await this.#scanner.examineAll(entries, pause, () => this.#isClosed);
          suspects.set(spec.name, found);
        }
        const awaited = this.#awaited;
        this.#awaited = [];
        await this.#scanner.examineAll(awaited, nextTurn, () => this.#isClosed);
        if (awaited.length > 0 && !this.#isClosed) this.#options.changed();
        // What has changed meanwhile is scanned first, unless something changes all the time.
        if (this.#isStale && ++passes < MAX_PASSES) continue;
        passes = 0;
        if (!this.#isClosed) this.#report(suspects);
      }
    } finally {
      this.#isScanning = false;
      this.#settle();
    }
  }

  /** Waits for `SCAN_DELAY` ms, or until somebody wants the result. */
  async #delay(): Promise<void> {
    const wanted = Promise.withResolvers<void>();
    this.#endDelay = wanted.resolve;
    await settlesWithin(SCAN_DELAY, wanted.promise);
    this.#endDelay = undefined;
  }

  #settle(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }

  /** Everything that the connections of a server list. */
  #entriesOf(server: string): readonly ScannedEntry[] {
    const listings = this.#options.pool
      .connectionsOf(server)
      .flatMap(({ known }) => known?.listing ?? []);
    return listings.flatMap((listing) => this.#entriesIn(listing));
  }

  #entriesIn({
    tools = [],
    prompts = [],
    instructions,
  }: Partial<ServerListing>): readonly ScannedEntry[] {
    return [
      ...tools.map((item) => this.#sourceOf("tool", item)),
      ...prompts.map((item) => this.#sourceOf("prompt", item)),
      ...(instructions === undefined ? [] : [this.#instructionsOf(instructions)]),
    ];
  }

  /**
   * Whether a server has an alert about a finding: not if a person has accepted the entry, and none before it is
   * compared with what was accepted.
   */
  #isAlerted(spec: RunnableServer, { kind, name }: EntryFinding): boolean {
    return this.#options.pool.connectionsOf(spec.name).some(({ known }) => {
      if (known === undefined) return false;
      const isAccepted = this.#options.isAccepted(known.listing, kind, name);
      return isAccepted === false || (pinLevelOf(spec) === "off" && isAccepted !== true);
    });
  }

  #sourceOf(kind: "tool" | "prompt", item: ListedItem): ScannedEntry {
    let source = this.#sources.get(item);
    if (source === undefined) {
      source = { kind, name: item.key, bytes: item.original ?? item.bytes };
      this.#sources.set(item, source);
    }
    return source;
  }

  #instructionsOf(text: string): ScannedEntry {
    const known = this.#instructions.get(text);
    if (known !== undefined) return known;
    if (this.#instructions.size >= MAX_FINDINGS) this.#instructions.clear();
    const source = {
      kind: "instructions",
      name: "instructions",
      bytes: utf8(text),
      isText: true,
    } as const;
    this.#instructions.set(text, source);
    return source;
  }

  /** Which names are those of tools of other servers. */
  #contextOf(server: string): ScanContext {
    return {
      isForeignTool: (name) => {
        this.#servers ??= this.#serversByTool();
        const servers = this.#servers.get(name);
        return servers !== undefined && !servers.has(server);
      },
    };
  }

  #serversByTool(): ReadonlyMap<string, ReadonlySet<string>> {
    const servers = new Map<string, Set<string>>();
    for (const spec of this.#options.pool.specs) {
      for (const { listing } of this.#options.pool.connectionsOf(spec.name)) {
        for (const { key } of listing?.tools ?? []) {
          const own = servers.get(key);
          if (own === undefined) servers.set(key, new Set([spec.name]));
          else own.add(spec.name);
        }
      }
    }
    return servers;
  }

  /**
   * Notes what was found, and raises or clears the alert of each server.
   * @param suspects the entries of each server that may have findings
   */
  #report(suspects: ReadonlyMap<string, readonly ScannedEntry[]>): void {
    const { pool, alerts } = this.#options;
    for (const name of this.#found.keys())
      if (!pool.specs.some((it) => it.name === name)) this.#found.delete(name);
    for (const spec of pool.specs) {
      const { name: server } = spec;
      const isListed = pool.connectionsOf(server).some(({ known }) => known !== undefined);
      if (!isListed) {
        this.#found.delete(server);
        alerts.clear(server, ["suspiciousText"]);
        continue;
      }
      const context = this.#contextOf(server);
      const found = new Map<string, EntryFinding>();
      for (const source of suspects.get(server) ?? []) {
        if (found.size >= 2 * MAX_FINDINGS) break;
        for (const finding of this.#scanner.scan(source, context)) {
          const { kind, name } = source;
          if (isIgnored(spec, name, finding.check)) continue;
          if (!finding.hard && found.size >= MAX_FINDINGS) continue;
          const shown = { kind, name, ...finding, excerpt: this.#options.redact(finding.excerpt) };
          found.set(JSON.stringify([kind, name, finding]), shown);
        }
      }
      const sorted = [...found.values()].sort((a, b) => Number(b.hard) - Number(a.hard));
      this.#found.set(server, sorted.slice(0, MAX_FINDINGS));
      const hard = sorted.filter((finding) => finding.hard && this.#isAlerted(spec, finding));
      if (hard.length === 0) alerts.clear(server, ["suspiciousText"]);
      else alerts.raise({ kind: "suspiciousText", server, text: alertText(spec, hard) });
    }
  }
}

/** Number of times that everything is scanned before what was found is told although it has changed again. */
const MAX_PASSES = 4;
/** The time between turns, in ms. */
const REST = 12;

function rest(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, REST);
  });
}

/**
 * Delay of a scan that nobody waits for, in ms. A client that has just come lists what servers had in earlier runs, and
 * scanning that at once would double the time until it has the list.
 */
const SCAN_DELAY = 50;

/** What `shownListing` says of a listing of which nothing is hidden. */
const WHOLE = JSON.stringify([false, []]);

/** Whether the manifest leaves out a check for an entry of a server. @param name the name at the server */
export function isIgnored(
  { scanIgnore }: Pick<RunnableServer, "scanIgnore">,
  name: string,
  check: string,
): boolean {
  if (scanIgnore === undefined) return false;
  return [name, "*"].some(
    (key) => Object.hasOwn(scanIgnore, key) && scanIgnore[key]?.some((one) => one === check),
  );
}

function alertText(spec: RunnableServer, hard: readonly EntryFinding[]): string {
  const { name } = spec;
  const hasPins = pinLevelOf(spec) !== "off";
  const isHidden = scanLevelOf(spec) === "block" || pinLevelOf(spec) === "block";
  const head = `Server "${name}" has suspicious text in its definitions, which a model may take for orders.`;
  const lines = hard
    .slice(0, MAX_ALERT_FINDINGS)
    .map((finding) => `${describePlace(finding)}: ${finding.check}: ${finding.excerpt}`);
  const more = hard.length > lines.length ? [`… and ${hard.length - lines.length} more`] : [];
  const what = isHidden ? "Clients do not see it." : "Clients see it.";
  const remedy = `${what} Look at it: toolmux scan ${name}. If it is harmless, ${hasPins ? `toolmux pins accept ${name} NAME, or ` : ""}name the check in scanIgnore of the server, else remove the server.`;
  return [head, ...lines, ...more, remedy].join("\n").slice(0, MAX_ALERT);
}
