import type { Edit } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { scanObject } from "../base/json.ts";
import { allowsBatches, type LegacyVersion, Method } from "../protocol/legacy.ts";
import { removeEnvelope } from "../protocol/modern.ts";
import { removeTaskParam } from "../protocol/tasks.ts";
import {
  buildNotification,
  type Notification,
  type Request,
  type Response,
} from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import type { PendingRequest } from "./pending.ts";
import type { ClientDeclaration } from "./sender.ts";
import type { ServerNotifications } from "./notifications.ts";
import type { Dialect, ListenTopic } from "./dialects.ts";

export interface LegacyDialectOptions {
  readonly version: LegacyVersion;
  /** Whether its log has levels. */
  readonly hasLevels: boolean;
  readonly transport: Transport;
  readonly voice: ServerNotifications;
  /** Asks something of the hub's own. */
  ask(method: string, params: object, signal: AbortSignal): Promise<Response>;
  post(method: string, params: object): unknown;
}

/** The server keeps what it was told, and asks by itself (2024-10-07 … 2025-11-25). */
export class LegacyDialect implements Dialect {
  readonly era = "legacy";
  readonly pulse = Method.ping;
  readonly hasBatches: boolean;
  readonly #parts: LegacyDialectOptions;

  constructor(parts: LegacyDialectOptions) {
    this.#parts = parts;
    this.hasBatches = allowsBatches(parts.version);
  }

  begin(): void {
    const { transport: link, voice, hasLevels } = this.#parts;
    link.send(buildNotification(Method.initialized));
    voice.begin(hasLevels);
  }

  complete(params: object | undefined): object | undefined {
    return params;
  }

  dress({ bytes, params, members }: Request, sender: ClientDeclaration, edits: Edit[]): void {
    if (sender.era === "legacy") return;
    const known = members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
    edits.push(...removeEnvelope({ bytes, members: known }));
    if (params !== undefined) edits.push(...removeTaskParam(bytes, params, known));
  }

  mayMakeTask({ isTask }: Pick<PendingRequest, "isTask">): boolean {
    return isTask === true;
  }

  async subscribe(uri: string, signal: AbortSignal, topic?: ListenTopic): Promise<void> {
    if (topic !== undefined) throw new HubError("methodNotFound", "The server tells it unasked.");
    const { outcome } = await this.#parts.ask(Method.subscribe, { uri }, signal);
    if (outcome === "error") throw new HubError("internal", "the server has refused.");
  }

  unsubscribe(uri: string, topic?: ListenTopic): void {
    if (topic === undefined) this.#parts.post(Method.unsubscribe, { uri });
  }

  strip(notification: Notification): Notification {
    return notification;
  }

  hear(): boolean {
    return false;
  }

  close(): void {}
}
