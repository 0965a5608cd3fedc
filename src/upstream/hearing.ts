import type { Kind } from "../catalog/item.ts";
import { Method } from "../protocol/legacy.ts";
import type { Notification } from "../wire/jsonrpc.ts";
import type { Dialect } from "./dialect/dialect.ts";
import { readProgress } from "./notice.ts";
import type { PendingTable } from "./pending.ts";
import type { Subscriptions } from "./subscriptions.ts";
import type { Voice } from "./voice.ts";

export interface HearingParts {
  readonly pending: PendingTable;
  readonly voice: Voice;
  dialect(): Dialect | undefined;
  subscriptions(): Subscriptions | undefined;
  /** What it lists of these kinds may be another. */
  listChanged(kinds: readonly Kind[]): void;
}

/** Takes what a server tells to those whom it is for. */
export class Hearing {
  readonly #parts: HearingParts;

  constructor(parts: HearingParts) {
    this.#parts = parts;
  }

  take(notification: Notification): void {
    const parts = this.#parts;
    switch (notification.method) {
      case Method.progress: {
        const progress = readProgress(notification);
        if (progress === undefined) return;
        parts.pending.get(progress.id)?.progress(notification, progress.tokens);
        return;
      }
      case Method.toolsListChanged:
        parts.listChanged(["tools"]);
        return;
      case Method.promptsListChanged:
        parts.listChanged(["prompts"]);
        return;
      case Method.resourcesListChanged:
        parts.listChanged(["resources", "resourceTemplates"]);
        return;
      case Method.resourceUpdated: {
        const plain = parts.dialect()?.strip(notification) ?? notification;
        parts.subscriptions()?.updated(plain);
        return;
      }
      default:
        if (parts.dialect()?.hear(notification) !== true) parts.voice.notified(notification);
    }
  }

  /** For a while nothing was heard of changes of these kinds, nor of those of resources. */
  miss(kinds: readonly Kind[]): void {
    this.#parts.listChanged(kinds);
    this.#parts.subscriptions()?.missed();
  }
}
