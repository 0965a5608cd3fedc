/**
 * approval/: decides which calls a person has to allow before they reach a server, asks the person, and remembers the
 * decisions. `policy.ts` has the rules of the manifest, `remembered.ts` the approvals that were given before, `disk.ts`
 * keeps them. Until the decision, the call waits in the router (`router/approval-gate.ts`). Main types: `Approvals`, below,
 * all pending approvals of a hub; `PendingApproval`, one of them. Start here with `ask` and `answer`.
 */
import { count } from "../base/format.ts";
import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import type {
  ApprovalDecision,
  ApprovalPrompt,
  ApprovalSource,
  ApprovedCall,
  EventBus,
  PersonalSource,
} from "../base/hub-events.ts";
import { JsonObject } from "../base/json.ts";
import type { ListedItem, ServerListing } from "../catalog/listing.ts";
import type { ListedRoute } from "../catalog/section.ts";
import { toolPartTexts } from "../catalog/tool-diff.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import type { ClientOrigin } from "../manifest/client-values.ts";
import { formatServerIdentity, type ServerIdentity } from "../snapshot/snapshots.ts";
import {
  type AgentCaller,
  type ApprovalRule,
  approvalRuleOf,
  type ApprovalSettings,
  mayNeedApproval,
  type MinimumApproval,
  NO_APPROVALS,
  raiseRule,
} from "./policy.ts";
import {
  memoryApprovals,
  type RememberedApproval,
  type RememberedApprovals,
  type ServerHints,
  sha256Hex,
} from "./remembered.ts";

/** Maximum number of approvals that are over and whose end is still known. */
const MAX_ENDED = 1024;

/**
 * Maximum number of pending approvals: of one client, of all clients that cannot be told apart for certain (HTTP without
 * a token: whoever can open one session can open many), and of all clients.
 */
export const MAX_PENDING = { perClient: 32, unidentified: 128, total: 256 };

export interface ApprovalsOptions {
  readonly bus: EventBus;
  readonly clock: Clock;
  /** Opens the store of permanent approvals; undefined: they are kept in memory only. */
  readonly openStore: (() => Promise<RememberedApprovals>) | undefined;
  /** Advice to a user who was not asked: the end of "Ask the user to …"; undefined: there is none. */
  readonly howToBeAsked: string | undefined;
  /** Whether programs can connect that show pending approvals to a person. */
  readonly isWatchable: boolean;
  /** Removes secrets from a text. */
  redact(text: string): string;
  /**
   * A server's identity, equal in all processes; undefined if a value that it needs is not available. Never rejects.
   * `origin`: what fills in its specification; undefined: the hub's own environment.
   */
  identityOf(
    spec: RunnableServer,
    origin: ClientOrigin | undefined,
  ): Promise<ServerIdentity | undefined>;
}

/** A server whose tools are called. */
export interface ApprovedServer {
  readonly spec: RunnableServer;
  /** The client whose values fill in its specification; undefined: the hub's own environment. */
  readonly origin?: ClientOrigin | undefined;
}

/** The client that makes a call. `session` decisions are remembered for this object. */
export interface ApprovalClient {
  readonly id?: string | undefined;
}

/** For whom pending approvals are counted, in addition to the client object. Equal keys are one owner. */
export interface ApprovalOwner {
  readonly key: string;
  readonly isUnidentified: boolean;
}

/** A remembered decision: `always` is stored and counts for all clients, `session` for one client until it leaves. */
export interface RememberedDecision extends RememberedApproval {
  readonly decision: "session" | "always";
  /** The id of the only client that it counts for; undefined: all clients. */
  readonly client?: string | undefined;
}

/** The tool whose call needs an approval: the properties on which decisions, remembered ones included, depend. */
export interface ApprovalSubject {
  readonly server: string;
  readonly tool: string;
  /** Digest of the tool's name and definition. It changes when the server changes one of them. */
  readonly definition: string;
  /** The key under which a permanent approval is stored; undefined if none can be stored. */
  readonly key: string | undefined;
  /**
   * Whether the tool's annotations say that it only reads. `changed`: they say so now, but did not when they were first
   * recorded.
   */
  readonly readOnly: "yes" | "no" | "changed";
  /** Whether the tool's annotations say that it may destroy something. */
  readonly isDestructive: boolean;
}

export interface ApprovalRequest extends Omit<ApprovalPrompt, "id" | "askedAt"> {
  readonly subject: ApprovalSubject;
  readonly caller: ApprovalClient;
  readonly owner: ApprovalOwner;
  /**
   * The id of a question about a call of another hub of this process, which remembers the decision itself; absent: the
   * call is one of this hub.
   */
  readonly forwardedId?: string | undefined;
}

/** `withdrawn`: the call has ended (`cause` is undefined), or can no longer be made (`cause` says why). */
export type ApprovalOutcome =
  | {
      readonly kind: "decided";
      readonly decision: ApprovalDecision;
      readonly by: ApprovalSource;
    }
  | { readonly kind: "withdrawn"; readonly cause: HubError | undefined };

/**
 * The result of answering a prompt. `unknown`: there is no such prompt; `over`: it has ended already; `noChoice`:
 * it does not offer that decision.
 */
export type DecisionResult = "accepted" | "unknown" | "over" | "noChoice";

/** The outcome of an approval, and the time of its end, in ms since the epoch. */
export interface EndedApproval extends Pick<ApprovedCall, "client" | "principal" | "clientName"> {
  readonly at: number;
  readonly outcome: ApprovalOutcome;
}

/** All calls of a hub that wait for an approval, and the approvals that were given before. */
export class Approvals {
  /** Whether calls of clients may need an approval. If not, their calls do not go through this class. */
  isOn = false;
  readonly #options: ApprovalsOptions;
  #settings: ApprovalSettings = NO_APPROVALS;
  /** Whether some client has asked for approvals of its calls, whatever the settings are. */
  #isRequired = false;
  readonly #pending = new Map<string, PendingApproval>();
  /** The last approvals that are over, by id, the oldest first. */
  readonly #ended = new Map<string, EndedApproval>();
  #watcherCount = 0;
  readonly #watchListeners = new Set<() => void>();
  #store: Promise<RememberedApprovals> | undefined;
  /** Ends the subscription to events of servers, which exists while approvals are pending. */
  #unsubscribe: (() => void) | undefined;
  /** By client: the decisions that count until it leaves, by session key (`sessionKeyOf`). */
  readonly #sessions = new Map<ApprovalClient, Map<string, RememberedDecision>>();
  /** Permanent approvals that are being written to the store, by key. The promises never reject. */
  readonly #storing = new Map<string, Promise<void>>();
  /**
   * Cache of the tools that need no approval at level `auto`. The value is the server's specification at the time of
   * the check; the entry is not valid for another specification.
   */
  readonly #readOnlyItems = new WeakMap<ListedItem, RunnableServer>();
  readonly #definitions = new WeakMap<
    ListedItem,
    {
      readonly server: ApprovedServer;
      readonly definition: Promise<Pick<ApprovalSubject, "definition" | "key">>;
    }
  >();
  /** The identities of each specification, by what fills it in; by this object for the hub's own environment. */
  readonly #identities = new WeakMap<
    RunnableServer,
    WeakMap<object, Promise<string | undefined>>
  >();
  readonly #hints = new WeakMap<ServerListing, ReadonlyMap<string, boolean>>();
  /** The listings that `recordListings` has seen. */
  readonly #recorded = new WeakSet<ServerListing>();

  constructor(options: ApprovalsOptions) {
    this.#options = options;
  }

  get settings(): ApprovalSettings {
    return this.#settings;
  }

  get howToBeAsked(): string | undefined {
    return this.#options.howToBeAsked;
  }

  get isWatchable(): boolean {
    return this.#options.isWatchable;
  }

  get clock(): Clock {
    return this.#options.clock;
  }

  /** Applies the settings of a manifest with these servers. */
  configure(settings: ApprovalSettings, specs: readonly RunnableServer[]): void {
    this.#settings = settings;
    this.isOn = this.#isRequired || mayNeedApproval(settings, specs);
  }

  /** Called when a client asks for a minimum level of its own: from then on, calls may need an approval. */
  require(): void {
    this.#isRequired = true;
    this.isOn = true;
  }

  /** The prompts of the pending approvals, the oldest first. */
  get prompts(): readonly ApprovalPrompt[] {
    return [...this.#pending.values()].map(({ prompt }) => prompt);
  }

  /** Number of programs that show pending approvals to a person at present. */
  get watcherCount(): number {
    return this.#watcherCount;
  }

  /** Counts a program that shows pending approvals to a person. @returns a function that ends the watch */
  watch(): () => void {
    if (++this.#watcherCount === 1) this.#reportWatchChange();
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      if (--this.#watcherCount === 0) this.#reportWatchChange();
    };
  }

  /**
   * Calls the listener when somebody begins to watch pending approvals, and when nobody watches them any more.
   * @returns a function that ends that
   */
  onWatchChange(listener: () => void): () => void {
    this.#watchListeners.add(listener);
    return () => void this.#watchListeners.delete(listener);
  }

  #reportWatchChange(): void {
    for (const listener of this.#watchListeners) listener();
    for (const open of this.#pending.values()) open.onWatchChange();
  }

  /**
   * The rule for a call; undefined if it needs no approval.
   * @param isListed whether the server is connected; if not, the tool may come from a saved listing
   * @param principal the name of the client in `[[clients]]`, if it has one
   * @param raised the minimum level that the client itself asks for
   */
  ruleFor(
    { item, remoteName }: ListedRoute,
    spec: RunnableServer,
    isListed: boolean,
    principal: string | undefined,
    agent: AgentCaller | undefined,
    raised?: MinimumApproval,
  ): ApprovalRule | undefined {
    const written = approvalRuleOf(spec, remoteName, this.#settings, agent, principal);
    const rule = raiseRule(written, raised, "--approval of the client");
    if (rule.level === "never") return undefined;
    if (rule.level === "auto") {
      const annotations = spec.tools.annotations;
      const isSet = annotations !== undefined && Object.hasOwn(annotations, remoteName);
      if (isSet && annotations[remoteName]?.readOnlyHint === true) return undefined;
      if (isListed && this.#readOnlyItems.get(item) === spec) return undefined;
    }
    return rule;
  }

  /**
   * Records, for tools that are not known yet, whether their annotations say that they only read. Never rejects.
   * @param listing what the server lists now
   */
  async recordListing(
    spec: RunnableServer,
    listing: ServerListing,
    origin?: ClientOrigin,
  ): Promise<void> {
    try {
      await this.#recordFirstHints({ spec, origin }, this.#hintsOf(listing));
    } catch (error) {
      this.#warn(
        spec.name,
        `The read-only hints of its tools cannot be stored: ${toHubError(error).message}`,
      );
    }
  }

  /**
   * Does the same for the listings of several servers, each of them once. Later calls with the same listings do nothing.
   * Never rejects.
   */
  async recordListings(
    listings: readonly (ApprovedServer & { readonly listing: ServerListing })[],
  ): Promise<void> {
    const added = listings.filter(({ listing }) => !this.#recorded.has(listing));
    if (added.length === 0) return;
    for (const { listing } of added) this.#recorded.add(listing);
    try {
      const store = await this.#openStore();
      const hints = await Promise.all(
        added.map(async ({ spec, origin, listing }): Promise<readonly ServerHints[]> => {
          const identity = await this.identityOf({ spec, origin });
          if (identity === undefined) return [];
          const serverKey = await store.keyOf([identity]);
          return [{ serverKey, server: spec.name, tools: this.#hintsOf(listing) }];
        }),
      );
      await store.recordAllFirstHints(hints.flat());
    } catch (error) {
      const text = `The read-only hints of tools cannot be stored: ${toHubError(error).message}`;
      this.#options.bus.emit({ kind: "log", level: "warn", source: "hub", text });
    }
  }

  /**
   * Determines the properties of a tool on which the approval of its calls depends.
   * @param listing what the server lists; undefined if that is not known
   * @throws {HubError} storeBroken or storeBusy
   */
  async examine(
    { item, remoteName }: ListedRoute,
    server: ApprovedServer,
    listing: ServerListing | undefined,
  ): Promise<ApprovalSubject> {
    const { spec, origin } = server;
    const own = ownToolOf({ item, remoteName }, listing);
    let known = this.#definitions.get(own);
    if (known?.server.spec !== spec || known.server.origin !== origin) {
      known = { server, definition: this.#define(own, server) };
      this.#definitions.set(own, known);
    }
    const { definition, key } = await known.definition;
    // The key may be available later: the next call tries again.
    if (key === undefined) this.#definitions.delete(own);
    const hints = JsonObject.of(item.bytes).object("annotations");
    return {
      server: spec.name,
      tool: remoteName,
      definition,
      key,
      readOnly: await this.#readOnlyOf(item, own, server, listing),
      isDestructive: hints.value("destructiveHint") === true,
    };
  }

  async #define(
    own: ListedItem,
    server: ApprovedServer,
  ): Promise<Pick<ApprovalSubject, "definition" | "key">> {
    const definition = await sha256Hex(Buffer.from(definitionOf(own)));
    const identity = await this.identityOf(server);
    if (identity === undefined) return { definition, key: undefined };
    const store = await this.#openStore();
    const key = await store.keyOf([identity, own.key, definition]).catch((error: unknown) => {
      this.#warn(server.spec.name, `Approvals cannot be remembered: ${toHubError(error).message}`);
      return undefined;
    });
    return { definition, key };
  }

  /**
   * The remembered decision that allows calls of a tool: until the client leaves (`session`), or permanently
   * (`always`).
   */
  async rememberedFor(
    subject: ApprovalSubject,
    client: ApprovalClient,
  ): Promise<"session" | "always" | undefined> {
    const { key } = subject;
    if (this.#sessions.get(client)?.has(sessionKeyOf(subject))) return "session";
    if (key === undefined) return undefined;
    const isAllowed = this.#storing.has(key) || (await (await this.#openStore()).allows(key));
    return isAllowed ? "always" : undefined;
  }

  /** Emits the event which says that a remembered decision allows a call. */
  reportRule(call: Omit<ApprovedCall, "id">, decision: "session" | "always"): void {
    const { bus } = this.#options;
    if (!bus.hasListeners("approval")) return;
    const fields = approvedCallOf({ ...call, id: idOfCall(call.call) });
    const rule = { by: "rule", decision, remembered: true } as const;
    bus.emit({ kind: "approval", change: "decided", ...fields, ...rule });
  }

  /**
   * Asks for an approval.
   * @param checkStillValid returns an error if the call can no longer be made as it was when it arrived
   * @throws {HubError} notApproved if too many approvals are pending
   */
  ask(asked: ApprovalRequest, checkStillValid: () => HubError | undefined): PendingApproval {
    const { subject: _, caller, owner, forwardedId, ...shown } = asked;
    const full = this.#fullFor(caller, owner);
    if (full !== undefined) {
      const text = `Tool "${shown.name}" was not called: it needs an approval, and ${full} already wait for theirs. Wait until they are decided.`;
      throw new HubError("notApproved", text, { server: shown.server });
    }
    const id = forwardedId ?? idOfCall(shown.call);
    const prompt: ApprovalPrompt = { ...shown, id, askedAt: Date.now() };
    const open = new PendingApproval(prompt, asked, checkStillValid, (outcome) =>
      this.#onEnd(open, outcome),
    );
    this.#pending.set(id, open);
    this.#unsubscribe ??= this.#options.bus.subscribe(() => {
      for (const each of this.#pending.values()) each.recheck();
    }, ["state", "server", "manifest", "catalog", "pins"]);
    this.#options.bus.emit({ kind: "approval", change: "asked", ...prompt });
    return open;
  }

  /** The calls that fill the limit for a client, in words; undefined if there is room. */
  #fullFor(caller: ApprovalClient, owner: ApprovalOwner): string | undefined {
    const all = [...this.#pending.values()];
    const ofClient = all.filter((open) => open.caller === caller).length;
    const ofOwner = all.filter((open) => open.owner.key === owner.key).length;
    const { perClient, unidentified, total } = MAX_PENDING;
    if (ofClient >= perClient) return `${ofClient} calls of this client`;
    if (ofOwner >= (owner.isUnidentified ? unidentified : perClient))
      return `${ofOwner} calls of ${owner.isUnidentified ? "clients without a token" : "this client"}`;
    return all.length >= total ? count(all.length, "call") : undefined;
  }

  /** Answers a prompt; the first answer counts. */
  answer(id: string, decision: ApprovalDecision, by: ApprovalSource): DecisionResult {
    const open = this.#pending.get(id);
    if (open === undefined) return this.#ended.has(id) ? "over" : "unknown";
    if (!open.prompt.choices.includes(decision)) return "noChoice";
    open.decide(decision, by);
    return "accepted";
  }

  /** Returns the end of an approval; undefined if it is pending or not known. */
  endOf(id: string): EndedApproval | undefined {
    return this.#ended.get(id);
  }

  /** Settles when the permanent approvals that were given so far are stored, or cannot be stored. Never rejects. */
  async stored(): Promise<void> {
    await Promise.all(this.#storing.values());
  }

  /** The store of permanent approvals. */
  get store(): Promise<RememberedApprovals> {
    return this.#openStore();
  }

  /** All remembered decisions: those that are stored, the oldest first, then those for the sessions of clients. */
  async remembered(): Promise<readonly RememberedDecision[]> {
    await this.stored();
    const stored = await (await this.#openStore()).list();
    return [
      ...stored.map((entry) => ({ ...entry, decision: "always" as const })),
      ...[...this.#sessions.values()].flatMap((decisions) => [...decisions.values()]),
    ];
  }

  /**
   * Forgets remembered decisions. @param ids undefined: all
   * @returns the ids of those that were forgotten
   * @throws {HubError} storeBroken or storeBusy
   */
  async forget(ids: readonly string[] | undefined): Promise<readonly string[]> {
    await this.stored();
    const forgotten: string[] = [];
    for (const decisions of this.#sessions.values()) {
      for (const [key, { id }] of decisions) {
        if (ids?.includes(id) === false) continue;
        decisions.delete(key);
        forgotten.push(id);
      }
    }
    return [...(await (await this.#openStore()).forget(ids)), ...forgotten];
  }

  /** Forgets the `session` decisions of a client that has left. */
  forgetClient(client: ApprovalClient): void {
    this.#sessions.delete(client);
  }

  #onEnd(open: PendingApproval, outcome: ApprovalOutcome): void {
    const { id, client, principal, clientName } = open.prompt;
    this.#pending.delete(id);
    const ended = { client, ...(principal !== undefined && { principal }), clientName };
    this.#ended.set(id, { ...ended, at: Date.now(), outcome });
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > MAX_ENDED && oldest !== undefined) this.#ended.delete(oldest);
    if (this.#pending.size === 0) {
      this.#unsubscribe?.();
      this.#unsubscribe = undefined;
    }
    const common = { kind: "approval", ...approvedCallOf(open.prompt) } as const;
    const { bus } = this.#options;
    if (outcome.kind === "withdrawn") {
      bus.emit({ ...common, change: "withdrawn" });
      return;
    }
    const { decision, by } = outcome;
    const remembered = decision === "session" || decision === "always";
    bus.emit({ ...common, change: "decided", by, decision, remembered });
    const isOwn = !open.isForwarded;
    if (isOwn && remembered && by !== "rule" && by !== "timeout")
      this.#remember(open, decision, by);
  }

  #remember(
    { subject, caller, prompt }: PendingApproval,
    decision: "session" | "always",
    by: PersonalSource,
  ): void {
    const { definition, key, server, tool } = subject;
    const { clientName, client } = prompt;
    const entry = { server, tool, clientName, by, at: Date.now() };
    if (decision === "session") {
      const decisions = this.#sessions.get(caller) ?? new Map<string, RememberedDecision>();
      const id = crypto.randomUUID().slice(0, 8);
      decisions.set(sessionKeyOf(subject), { id, ...entry, decision, client });
      this.#sessions.set(caller, decisions);
    } else if (key !== undefined) {
      const stored = this.#openStore()
        .then((store) => store.allow(key, entry))
        .catch((error: unknown) => {
          const text = `The approval of "${tool}" counts only once, as it cannot be stored: ${toHubError(error).message}`;
          this.#warn(server, text);
        })
        .finally(() => {
          if (this.#storing.get(key) === stored) this.#storing.delete(key);
        });
      this.#storing.set(key, stored);
    }
    for (const other of this.#pending.values()) {
      const isSame = other.subject.server === server && other.subject.definition === definition;
      const isSelected =
        decision === "session" ? other.caller === caller : other.subject.key === key;
      if (isSame && isSelected && other.prompt.choices.includes(decision))
        other.decide(decision, "rule");
    }
  }

  async #readOnlyOf(
    item: ListedItem,
    own: ListedItem,
    server: ApprovedServer,
    listing: ServerListing | undefined,
  ): Promise<ApprovalSubject["readOnly"]> {
    const { spec } = server;
    const { annotations } = spec.tools;
    const set = annotations && Object.hasOwn(annotations, own.key) && annotations[own.key];
    const byManifest = set ? set.readOnlyHint : undefined;
    if (byManifest !== undefined) return byManifest ? "yes" : "no";
    const hints = new Map(listing && this.#hintsOf(listing));
    if (!hints.has(own.key)) hints.set(own.key, readOnlyHintOf(own));
    const first = await this.#recordFirstHints(server, hints).catch((error: unknown) => {
      this.#warn(
        spec.name,
        `The read-only hints of its tools cannot be stored: ${toHubError(error).message}`,
      );
      return undefined;
    });
    if (hints.get(own.key) !== true) return "no";
    if (first === undefined || !first.has(own.key)) return "changed";
    this.#readOnlyItems.set(item, spec);
    return "yes";
  }

  async #recordFirstHints(
    server: ApprovedServer,
    hints: ReadonlyMap<string, boolean>,
  ): Promise<ReadonlySet<string> | undefined> {
    const identity = await this.identityOf(server);
    if (identity === undefined) return undefined;
    const store = await this.#openStore();
    return store.recordFirstHints(await store.keyOf([identity]), server.spec.name, hints);
  }

  #hintsOf(listing: ServerListing): ReadonlyMap<string, boolean> {
    const known = this.#hints.get(listing);
    if (known !== undefined) return known;
    const hints = new Map<string, boolean>();
    for (const tool of listing.tools)
      if (!hints.has(tool.key)) hints.set(tool.key, readOnlyHintOf(tool));
    this.#hints.set(listing, hints);
    return hints;
  }

  /** The server's identity as text; undefined if a value that it needs is not available now. Never rejects. */
  identityOf({ spec, origin }: ApprovedServer): Promise<string | undefined> {
    if (spec.kind === "plugin")
      return Promise.resolve(JSON.stringify(["plugin", spec.plugin, spec.name]));
    if (spec.kind === "fleet") {
      const { tenant, machine = null, fleet } = spec;
      return Promise.resolve(JSON.stringify(["fleet", tenant, machine, fleet]));
    }
    const identities =
      this.#identities.get(spec) ?? new WeakMap<object, Promise<string | undefined>>();
    this.#identities.set(spec, identities);
    const filledBy = origin ?? this;
    const known = identities.get(filledBy);
    if (known !== undefined) return known;
    const identity = this.#options
      .identityOf(spec, origin)
      .then((resolved) => resolved && formatServerIdentity(resolved));
    identities.set(filledBy, identity);
    void identity.then((text) => text === undefined && identities.delete(filledBy));
    return identity;
  }

  #openStore(): Promise<RememberedApprovals> {
    this.#store ??= (this.#options.openStore?.() ?? Promise.resolve(memoryApprovals())).then(
      (store) => {
        store.onDamage = (text) =>
          this.#options.bus.emit({ kind: "log", level: "warn", source: "hub", text });
        return store;
      },
    );
    return this.#store;
  }

  #warn(server: string, text: string): void {
    this.#options.bus.emit({ kind: "log", level: "warn", source: "hub", server, text });
  }

  /** Removes secrets from a text. */
  redact(text: string): string {
    return this.#options.redact(text);
  }
}

/** A call whose approval is not decided yet. */
export class PendingApproval {
  readonly prompt: ApprovalPrompt;
  readonly subject: ApprovalSubject;
  readonly caller: ApprovalClient;
  readonly owner: ApprovalOwner;
  /** See `ApprovalRequest.forwardedId`. */
  readonly isForwarded: boolean;
  /** Settles when the approval is decided or withdrawn; never rejects. */
  readonly outcome: Promise<ApprovalOutcome>;
  /** Called when somebody begins to watch pending approvals, and when nobody watches them any more. */
  onWatchChange: () => void = () => {};
  readonly #deferred: PromiseWithResolvers<ApprovalOutcome> =
    Promise.withResolvers<ApprovalOutcome>();
  readonly #checkStillValid: () => HubError | undefined;
  readonly #onEnd: (outcome: ApprovalOutcome) => void;
  #isOver = false;

  constructor(
    prompt: ApprovalPrompt,
    {
      subject,
      caller,
      owner,
      forwardedId,
    }: Pick<ApprovalRequest, "subject" | "caller" | "owner" | "forwardedId">,
    checkStillValid: () => HubError | undefined,
    onEnd: (outcome: ApprovalOutcome) => void,
  ) {
    this.prompt = prompt;
    this.subject = subject;
    this.caller = caller;
    this.owner = owner;
    this.isForwarded = forwardedId !== undefined;
    this.outcome = this.#deferred.promise;
    this.#checkStillValid = checkStillValid;
    this.#onEnd = onEnd;
  }

  /** Ends the wait with a decision. Does nothing if the wait is over already. */
  decide(decision: ApprovalDecision, by: ApprovalSource): void {
    this.#end({ kind: "decided", decision, by });
  }

  /** Ends the wait without a decision. @param cause the error for the client; undefined if the call has ended */
  withdraw(cause: HubError | undefined): void {
    this.#end({ kind: "withdrawn", cause });
  }

  /** Withdraws the prompt if its call can no longer be made as it was when it arrived. */
  recheck(): void {
    const error = this.#isOver ? undefined : this.#checkStillValid();
    if (error !== undefined) this.withdraw(error);
  }

  #end(outcome: ApprovalOutcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#onEnd(outcome);
    this.#deferred.resolve(outcome);
  }
}

/** The id of the approval that a call waits for. A call waits for one approval at most. */
function idOfCall(call: number): string {
  return `call:${call}`;
}

/**
 * The key under which a `session` decision is remembered. `key` includes the server's identity, so that another server
 * of the same name has another session key. If there is no `key`, only the server's name and the tool's definition
 * count.
 */
function sessionKeyOf({ server, key, definition }: ApprovalSubject): string {
  return `${server} ${key ?? definition}`;
}

/** The fields of a prompt that its later events repeat. */
function approvedCallOf(prompt: ApprovedCall): ApprovedCall {
  const { id, call, client, principal, clientName, agent, server, tool, name } = prompt;
  return {
    id,
    call,
    client,
    ...(principal !== undefined && { principal }),
    clientName,
    ...(agent !== undefined && { agent }),
    server,
    tool,
    name,
  };
}

/** The tool as its server lists it; if the server does not list it, because a plugin added it, as clients see it. */
export function ownToolOf(
  { item, remoteName }: Pick<ListedRoute, "item" | "remoteName">,
  listing: ServerListing | undefined,
): ListedItem {
  return listing?.tools.find(({ key }) => key === remoteName) ?? item;
}

/** The name and definition of a tool as text. The order of keys in the definition makes no difference. */
export function definitionOf(tool: ListedItem): string {
  return JSON.stringify([tool.key, ...toolPartTexts(tool)]);
}

function readOnlyHintOf(item: ListedItem): boolean {
  return JsonObject.of(item.bytes).object("annotations").value("readOnlyHint") === true;
}
