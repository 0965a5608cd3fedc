import { revise } from "../../wire/frame.ts";
import type { Edit } from "../../bytes.ts";
import { type Member, scanObject } from "../../json.ts";
import { removeMembers } from "../../object.ts";
import { type Capabilities, withoutTasks } from "../../protocol/capabilities.ts";
import { TASKS, WITH_TASKS } from "../../protocol/extension.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import {
  addEnvelope,
  makeSeal,
  MetaKey,
  ModernMethod,
  type ModernVersion,
  type Seal,
  writeEnvelope,
} from "../../protocol/modern.ts";
import { removeTask } from "../../protocol/tasks.ts";
import type { Notification, Request } from "../../wire/jsonrpc.ts";
import type { Listening } from "../listening.ts";
import { readLog, relayLog } from "../notice.ts";
import type { Pending, PendingTable } from "../pending.ts";
import type { Sender } from "../sender.ts";
import type { Dialect, Topic } from "./dialect.ts";

export interface ModernParts {
  readonly server: string;
  readonly version: ModernVersion;
  /** Who the hub is, and what its clients can be asked for. */
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  readonly pending: PendingTable;
  readonly listening: Listening;
  /** A line of the server's log. */
  log(text: string): void;
}

/** Extensions of the protocol that the hub relays all of. */
const CARRIED: ReadonlySet<string> = new Set(["io.modelcontextprotocol/ui", TASKS]);

/** The members of what is listened for. */
const MEMBERS = { resource: "resourceSubscriptions", task: "taskIds" } as const;

/** What the hub says of itself, or of a client that cannot say it, in a request's `_meta`. */
export function introduce(
  version: ModernVersion,
  client: Implementation,
  capabilities: Capabilities,
): object {
  // What it asks of its own accord may be about tasks.
  const whole = { ...modernize(capabilities), ...WITH_TASKS };
  const envelope = { version, client, capabilities: whole, level: undefined };
  return JSON.parse(`{${writeEnvelope(envelope)}}`) as object;
}

/** Every request says who it is from, nothing is kept between two of them, and the server sends no requests (2026-07-28). */
export class ModernDialect implements Dialect {
  readonly era = "modern";
  readonly pulse = ModernMethod.discover;
  readonly hasBatches = false;
  readonly #parts: ModernParts;
  readonly #envelope: object;
  /** The last client of the legacy era that something was sent for, and its envelope. */
  #last: { readonly sender: Sender; readonly seal: Seal } | undefined;

  constructor(parts: ModernParts) {
    this.#parts = parts;
    this.#envelope = introduce(parts.version, parts.clientInfo, parts.capabilities);
  }

  begin(): void {
    this.#parts.listening.begin();
  }

  complete(params: object | undefined): object {
    return { ...params, _meta: this.#envelope };
  }

  dress(request: Request, sender: Sender, edits: Edit[]): void {
    const { bytes, params } = request;
    if (params === undefined) return;
    if (sender.era === "modern" && !hasUncarried(sender.declared)) return;
    const members = request.members ?? scanObject(bytes, params.start)?.items ?? [];
    if (sender.era === "modern") {
      edits.push(...removeUncarried(bytes, members));
      return;
    }
    edits.push(...removeTask(bytes, params, members));
    edits.push(...addEnvelope({ bytes, params, members }, this.#sealOf(sender)));
  }

  /** Servers alone decide that. */
  mayMakeTask({ method }: Pick<Pending, "method">): boolean {
    return method === Method.toolsCall;
  }

  subscribe(id: string, signal: AbortSignal, topic?: Topic): Promise<void> {
    return this.#parts.listening.add(MEMBERS[topic ?? "resource"], id, signal);
  }

  unsubscribe(id: string, topic?: Topic): void {
    this.#parts.listening.remove(MEMBERS[topic ?? "resource"], id);
  }

  /** The id of a subscription belongs to one hop. */
  strip(notification: Notification): Notification {
    const { bytes, params } = notification;
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    const edits = objectsOf(bytes, members, "_meta").flatMap(({ range, items }) =>
      removeMembers(bytes, range, items, (key) => key === MetaKey.subscription),
    );
    return revise(notification, edits);
  }

  hear(notification: Notification, record: Pending | undefined): boolean {
    switch (notification.method) {
      case ModernMethod.acknowledged:
        this.#parts.listening.acknowledged(notification);
        return true;
      case Method.cancelled:
        this.#parts.listening.cancelled(notification);
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
  #logged(notification: Notification, record: Pending | undefined): void {
    const { server, pending } = this.#parts;
    const text = readLog(notification);
    if (text !== undefined) this.#parts.log(text);
    const line = relayLog(server, notification);
    if (line === undefined) return;
    if (record !== undefined) {
      record.log?.(line.severity, line.message);
      return;
    }
    pending.logged?.log?.(line.severity, line.message);
  }

  #sealOf(sender: Sender): Seal {
    if (this.#last?.sender === sender) return this.#last.seal;
    const { info, declared, level } = sender;
    const { version } = this.#parts;
    const capabilities = { ...modernize(declared), ...(sender.isDriven && WITH_TASKS) };
    const seal = makeSeal(writeEnvelope({ version, client: info, capabilities, level }));
    this.#last = { sender, seal };
    return seal;
  }
}

/** What a client of the legacy era declares, in the words of the modern one: changes of roots are not told there, and it has no such tasks. */
function modernize(declared: Capabilities): object {
  const { roots, ...others } = withoutTasks(declared);
  return { ...others, ...(roots && { roots: {} }) };
}

function hasUncarried(declared: object): boolean {
  const extensions: unknown = "extensions" in declared ? declared.extensions : undefined;
  if (typeof extensions !== "object" || extensions === null) return false;
  return Object.keys(extensions).some((key) => !CARRIED.has(key));
}

/** Takes out of a request's envelope the extensions that need more than what the hub relays. */
function removeUncarried(bytes: Uint8Array, params: readonly Member[]): Edit[] {
  return objectsOf(bytes, params, "_meta")
    .flatMap(({ items }) => objectsOf(bytes, items, MetaKey.capabilities))
    .flatMap(({ items }) => objectsOf(bytes, items, "extensions"))
    .flatMap(({ range, items }) => removeMembers(bytes, range, items, (key) => !CARRIED.has(key)));
}

interface Inner {
  readonly range: Member;
  readonly items: readonly Member[];
}

/** Every object of that key: servers' parsers differ on which of several counts. */
function objectsOf(bytes: Uint8Array, members: readonly Member[], key: string): readonly Inner[] {
  return members.flatMap((range) => {
    const items = range.key === key ? scanObject(bytes, range.start)?.items : undefined;
    return items === undefined ? [] : [{ range, items }];
  });
}
