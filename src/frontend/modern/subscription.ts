import { Buffer } from "node:buffer";
import { joinPieces, utf8 } from "../../base/bytes.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import type { Kind } from "../../catalog/listing.ts";
import type { Section } from "../../catalog/section.ts";
import type { Clock } from "../../base/clock.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, scanObject, parseRange } from "../../base/json.ts";
import { type Implementation, LIST_CHANGED, Method } from "../../protocol/legacy.ts";
import { addEnvelope, prepareEnvelope, MetaKey, ModernMethod } from "../../protocol/modern.ts";
import type { RunningRequest } from "../../router/call.ts";
import type { TaskSubscription } from "../../router/hearing.ts";
import type { Router } from "../../router/router.ts";
import { RESOURCE_METHOD } from "../../router/params.ts";
import { ResourceSubscriptions } from "../../router/subscriptions.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import {
  buildNotification,
  buildResult,
  type EncodedMessage,
  withResponseId,
  type Request,
  joinMessage,
  editMessage,
} from "../../jsonrpc/message.ts";
import { checkTasks, type Letter } from "./request.ts";
import type { WayBack } from "./wayback.ts";

/**
 * Longest wait for servers to accept subscriptions before the acknowledgement is sent without the missing ones, in ms.
 */
const AGREEMENT = 3000;
/** Maximum number of resources and tasks in one `subscriptions/listen`. */
const MOST_NAMES = 1024;

export interface ListeningParts {
  readonly clock: Clock;
  readonly router: Router;
  readonly serverInfo: Implementation;
  /** The catalog at the start. */
  readonly catalog: Catalog;
  /** Called once, when it has ended. */
  over(listening: Listening): void;
}

/** One `subscriptions/listen` in flight: sends its client the notifications that it asked for, and nothing else. */
export class Listening {
  readonly #letter: Letter;
  readonly #way: WayBack;
  readonly #parts: ListeningParts;
  /** The member of `_meta` that names the client's request: the subscription id. */
  readonly #name: string;
  readonly #wanted: Wanted;
  /** The list sections that it covers, as the client may know them. */
  readonly #known: Map<Kind, Section>;
  readonly #watches = new ResourceSubscriptions((message) => this.#updated(message));
  /** Subscriptions that servers have not answered yet, by URI; and the URIs that were refused. */
  readonly #asking = new Map<string, RunningRequest>();
  readonly #refused = new Set<string>();
  /** Subscriptions to tasks, by the task ids that the client knows; and the ids whose servers have not answered yet. */
  readonly #hearings = new Map<string, TaskSubscription>();
  readonly #unsettled = new Set<string>();
  /** Notifications that wait until the acknowledgement is sent; undefined once it is. */
  #early: EncodedMessage[] | undefined = [];
  #disarm: () => void = () => {};
  #isOver = false;

  /** @throws {HubError} invalidParams, missingCapability */
  constructor(letter: Letter, way: WayBack, parts: ListeningParts) {
    this.#letter = letter;
    this.#way = way;
    this.#parts = parts;
    this.#wanted = readWanted(letter);
    if (this.#wanted.tasks.length > 0) checkTasks(letter);
    this.#name = `"${MetaKey.subscription}":${joinPieces([letter.request.id]).toString()}`;
    this.#known = new Map(this.#wanted.kinds.map((kind) => [kind, parts.catalog[kind]]));
  }

  begin(): void {
    this.#way.whenGone(() => this.end());
    this.#disarm = this.#parts.clock.after(AGREEMENT, () => this.#acknowledge());
    for (const uri of this.#wanted.uris) this.#subscribe(uri);
    for (const id of this.#wanted.tasks) this.#hear(id);
    if (this.#isSettled) this.#acknowledge();
  }

  /** The catalog may have changed: sends `list_changed` for what did. */
  compare(catalog: Catalog): void {
    const methods = new Set<string>();
    for (const [kind, section] of this.#known) {
      if (section.equals(catalog[kind])) continue;
      this.#known.set(kind, catalog[kind]);
      methods.add(LIST_CHANGED[kind]);
    }
    for (const method of methods) this.#tell(buildNotification(method, {}));
  }

  /** The hub ends the subscription: the client gets the final result. */
  stop(): void {
    if (this.#isOver) return;
    this.end();
    const server = JSON.stringify(this.#parts.serverInfo);
    const meta = `{${this.#name},"${MetaKey.server}":${server}}`;
    const result = utf8(`{"_meta":${meta},"resultType":"complete"}`);
    this.#way.respond(buildResult(this.#letter.request.id, result));
  }

  /** Ends the subscription without an answer: the client is gone, or has cancelled it. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#disarm();
    for (const running of this.#asking.values()) running.cancel("Nobody listens.", "client");
    this.#asking.clear();
    this.#watches.close();
    for (const hearing of this.#hearings.values()) hearing.stop();
    this.#parts.over(this);
  }

  #subscribe(uri: string): void {
    const { sender } = this.#letter;
    const request = buildSubscribe(uri);
    const caller = {
      // A request of the hub's own, in the form of the legacy era.
      sender: { ...sender, era: "legacy", level: undefined } as const,
      toClientMessage: readdressed,
      respond: (message: EncodedMessage | undefined) => this.#settle(uri, message),
      notify: () => {},
      sendServerRequest: refuseAll,
    };
    try {
      const running = this.#parts.router.route(request, caller, RESOURCE_METHOD, this.#watches);
      this.#asking.set(uri, running);
      running.run();
    } catch {
      this.#asking.delete(uri);
      this.#refused.add(uri);
    }
  }

  #settle(uri: string, message: EncodedMessage | undefined): void {
    if (!this.#asking.delete(uri)) return;
    const frame = message && parseMessage(joinMessage(message));
    if (frame?.kind !== "response" || frame.outcome === "error") this.#refused.add(uri);
    if (this.#isSettled) queueMicrotask(() => this.#acknowledge());
  }

  get #isSettled(): boolean {
    return this.#asking.size === 0 && this.#unsettled.size === 0;
  }

  /** Tasks that are unknown, or whose server sends no notifications of them, are left out of the acknowledgement. */
  #hear(id: string): void {
    try {
      const hearing = this.#parts.router.subscribeTask(id, {
        onNotification: (message) => this.#updated(message),
        onSubscribeAnswer: (isAgreed) => {
          if (!isAgreed) this.#hearings.delete(id);
          this.#unsettled.delete(id);
          if (this.#isSettled) queueMicrotask(() => this.#acknowledge());
        },
      });
      this.#hearings.set(id, hearing);
      this.#unsettled.add(id);
      hearing.start();
    } catch {
      this.#hearings.delete(id);
    }
  }

  /** The first notification: which of the requested subscriptions are in effect. */
  #acknowledge(): void {
    const early = this.#early;
    if (early === undefined || this.#isOver) return;
    this.#disarm();
    this.#early = undefined;
    const uris = this.#wanted.uris.filter((uri) => !this.#refused.has(uri));
    const notifications = {
      ...this.#wanted.flags,
      ...(uris.length > 0 && { resourceSubscriptions: uris }),
      ...(this.#hearings.size > 0 && { taskIds: [...this.#hearings.keys()] }),
    };
    this.#tell(buildNotification(ModernMethod.acknowledged, { notifications }));
    for (const message of early) this.#way.notify(message);
    if (Object.keys(notifications).length === 0) this.stop();
  }

  #updated(message: EncodedMessage): void {
    this.#tell(joinMessage(message));
  }

  #tell(message: Uint8Array): void {
    const named = this.#sign(message);
    if (this.#isOver || named === undefined) return;
    if (this.#early === undefined) this.#way.notify(named);
    else this.#early.push(named);
  }

  /** Adds the subscription id to a notification's `_meta`. */
  #sign(message: Uint8Array): EncodedMessage | undefined {
    const frame = parseMessage(Buffer.from(message.buffer, message.byteOffset, message.length));
    if (frame.kind !== "notification" || frame.params === undefined) return undefined;
    const { bytes, params } = frame;
    const members = scanObject(bytes, params.start)?.items ?? [];
    return editMessage(frame, addEnvelope({ bytes, params, members }, prepareEnvelope(this.#name)));
  }
}

interface Wanted {
  readonly kinds: readonly Kind[];
  readonly uris: readonly string[];
  readonly tasks: readonly string[];
  /** The list flags that were requested, for the acknowledgement. */
  readonly flags: Readonly<Record<string, true>>;
}

/** The lists that each flag of `subscriptions/listen` covers. */
const WISHES = {
  toolsListChanged: ["tools"],
  promptsListChanged: ["prompts"],
  resourcesListChanged: ["resources", "resourceTemplates", "skills"],
} as const satisfies Record<string, readonly Kind[]>;

function readWanted({ request, members }: Letter): Wanted {
  const member = lastMember(members, "notifications");
  const given = member && parseRange(request.bytes, member);
  if (typeof given !== "object" || given === null || Array.isArray(given)) throw refusal();
  const says = given as Readonly<Record<string, unknown>>;
  const wishes = Object.entries(WISHES).filter(([wish]) => says[wish] === true);
  const uris = says["resourceSubscriptions"] ?? [];
  const tasks = says["taskIds"] ?? [];
  if (!isTexts(uris) || !isTexts(tasks)) throw refusal();
  if (uris.length + tasks.length > MOST_NAMES) throw refusal();
  return {
    kinds: wishes.flatMap(([, kinds]) => kinds),
    uris: [...new Set(uris)],
    tasks: [...new Set(tasks)],
    flags: Object.fromEntries(wishes.map(([wish]) => [wish, true])),
  };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === "string");
}

function refusal(): HubError {
  const text = `subscriptions/listen needs notifications: what to tell of, with at most ${MOST_NAMES} URIs and ids.`;
  return new HubError("invalidParams", text);
}

function buildSubscribe(uri: string): Request {
  const params = JSON.stringify({ uri });
  const text = `{"jsonrpc":"2.0","id":0,"method":"${Method.subscribe}","params":${params}}`;
  const frame = parseMessage(Buffer.from(text));
  if (frame.kind !== "request") throw refusal();
  return frame;
}

type Ask = { fail(error: HubError): void };

function refuseAll(question: Ask): () => void {
  question.fail(new HubError("notAsked", "A subscription is asked nothing."));
  return () => {};
}

function readdressed(response: Parameters<typeof withResponseId>[0]): EncodedMessage {
  return withResponseId(response, "0");
}
