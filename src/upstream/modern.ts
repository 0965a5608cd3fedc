import { applyMessageEdits } from "../jsonrpc/parse.ts";
import type { Edit } from "../base/bytes.ts";
import { type JsonMember, scanObject } from "../base/json.ts";
import { removeMembers } from "../base/object.ts";
import {
  type Capabilities,
  readAllExtensionSettings,
  withoutTasks,
  formatExtensionSettings,
} from "../protocol/capabilities.ts";
import { TASKS_CAPABILITY } from "../protocol/extension.ts";
import { type Implementation, Method } from "../protocol/legacy.ts";
import {
  addEnvelope,
  prepareEnvelope,
  MetaKey,
  ModernMethod,
  type ModernVersion,
  type PreparedEnvelope,
  formatEnvelope,
} from "../protocol/modern.ts";
import { removeTaskParam } from "../protocol/tasks.ts";
import type { Notification, Request } from "../jsonrpc/message.ts";
import type { ListenSubscription } from "./listen.ts";
import { readLogMessage, prefixLogMessage } from "../protocol/notifications.ts";
import type { PendingRequest, PendingRequests } from "./pending.ts";
import type { ClientDeclaration } from "./sender.ts";
import type { Dialect, ListenTopic } from "./dialects.ts";

export interface ModernDialectOptions {
  readonly server: string;
  readonly version: ModernVersion;
  /** Who the hub is, and what its clients can be asked for. */
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  readonly pending: PendingRequests;
  readonly listening: ListenSubscription;
  /** A line of the server's log. */
  log(text: string): void;
}

/** The members of what is listened for. */
const MEMBERS = { resource: "resourceSubscriptions", task: "taskIds" } as const;

/** What the hub says of itself, or of a client that cannot say it, in a request's `_meta`. */
export function clientEnvelopeOf(
  version: ModernVersion,
  client: Implementation,
  capabilities: Capabilities,
): object {
  // What it asks of its own accord may be about tasks.
  const whole = modernize(capabilities, true);
  const envelope = { version, client, capabilities: whole, level: undefined };
  return JSON.parse(`{${formatEnvelope(envelope)}}`) as object;
}

/** Every request says who it is from, nothing is kept between two of them, and the server sends no requests (2026-07-28). */
export class ModernDialect implements Dialect {
  readonly era = "modern";
  readonly pulse = ModernMethod.discover;
  readonly hasBatches = false;
  readonly #parts: ModernDialectOptions;
  readonly #envelope: object;
  /** The last client of the legacy era that something was sent for, and its envelope. */
  #last: { readonly sender: ClientDeclaration; readonly seal: PreparedEnvelope } | undefined;

  constructor(parts: ModernDialectOptions) {
    this.#parts = parts;
    this.#envelope = clientEnvelopeOf(parts.version, parts.clientInfo, parts.capabilities);
  }

  begin(): void {
    this.#parts.listening.begin();
  }

  complete(params: object | undefined): object {
    return { ...params, _meta: this.#envelope };
  }

  dress(request: Request, sender: ClientDeclaration, edits: Edit[]): void {
    const { bytes, params } = request;
    if (params === undefined) return;
    if (sender.era === "modern") return;
    const members = request.members ?? scanObject(bytes, params.start)?.items ?? [];
    edits.push(...removeTaskParam(bytes, params, members));
    edits.push(...addEnvelope({ bytes, params, members }, this.#sealOf(sender)));
  }

  /** Servers alone decide that. */
  mayMakeTask({ method }: Pick<PendingRequest, "method">): boolean {
    return method === Method.toolsCall;
  }

  subscribe(id: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    return this.#parts.listening.add(MEMBERS[topic ?? "resource"], id, signal);
  }

  unsubscribe(id: string, topic?: ListenTopic): void {
    this.#parts.listening.remove(MEMBERS[topic ?? "resource"], id);
  }

  /** The id of a subscription belongs to one hop. */
  strip(notification: Notification): Notification {
    const { bytes, params } = notification;
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    const edits = objectsOf(bytes, members, "_meta").flatMap(({ range, items }) =>
      removeMembers(bytes, range, items, (key) => key === MetaKey.subscription),
    );
    return applyMessageEdits(notification, edits);
  }

  hear(notification: Notification, record: PendingRequest | undefined): boolean {
    switch (notification.method) {
      case ModernMethod.acknowledged:
        this.#parts.listening.onAcknowledged(notification);
        return true;
      case Method.cancelled:
        this.#parts.listening.onCancelled(notification);
        return true;
      case Method.message:
        this.#logged(notification, record);
        return true;
      default:
        return false;
    }
  }

  close(): void {
    this.#parts.listening.close();
  }

  /** On a pipe nothing says which request it belongs to: it goes to a client only if all that may have led to it are of that one. */
  #logged(notification: Notification, record: PendingRequest | undefined): void {
    const { server, pending } = this.#parts;
    const text = readLogMessage(notification);
    if (text !== undefined) this.#parts.log(text);
    const line = prefixLogMessage(server, notification);
    if (line === undefined) return;
    if (record !== undefined) {
      record.log?.(line.severity, line.message);
      return;
    }
    pending.logged?.log?.(line.severity, line.message);
  }

  #sealOf(sender: ClientDeclaration): PreparedEnvelope {
    if (this.#last?.sender === sender) return this.#last.seal;
    const { info, declared, level } = sender;
    const { version } = this.#parts;
    const capabilities = modernize(declared, sender.isDriven === true);
    const seal = prepareEnvelope(formatEnvelope({ version, client: info, capabilities, level }));
    this.#last = { sender, seal };
    return seal;
  }
}

/**
 * What a client of the legacy era declares, in the words of the modern one: changes of roots are not told there, and it has no
 * such tasks. @param hasTasks the hub brings them to their end
 */
function modernize(declared: Capabilities, hasTasks: boolean): object {
  const { roots, ...others } = withoutTasks(declared);
  const { extensions, experimental } = readAllExtensionSettings(declared);
  const own = hasTasks ? TASKS_CAPABILITY.extensions : {};
  const settings = { extensions: { ...extensions, ...own }, experimental };
  return { ...others, ...(roots && { roots: {} }), ...formatExtensionSettings(settings) };
}

interface Inner {
  readonly range: JsonMember;
  readonly items: readonly JsonMember[];
}

/** Every object of that key: servers' parsers differ on which of several counts. */
function objectsOf(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  key: string,
): readonly Inner[] {
  return members.flatMap((range) => {
    const items = range.key === key ? scanObject(bytes, range.start)?.items : undefined;
    return items === undefined ? [] : [{ range, items }];
  });
}
