import type { Kind } from "../catalog/listing.ts";
import type { Clock } from "../base/clock.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import type { Implementation } from "../protocol/legacy.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import type { ServerHandshake } from "./handshake.ts";
import { ListenSubscription } from "./listen.ts";
import type { PendingRequests } from "./pending.ts";
import type { ServerNotifications } from "./notifications.ts";
import type { Dialect } from "./dialects.ts";
import { LegacyDialect } from "./legacy.ts";
import { ModernDialect } from "./modern.ts";

/** What a server is spoken to with. */
export interface DialectOptions {
  readonly server: string;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly pending: PendingRequests;
  readonly voice: ServerNotifications;
  /** Who the hub is, and what its clients can be asked for. */
  readonly clientInfo: Implementation;
  readonly capabilities: Capabilities;
  ask(method: string, params: object, signal: AbortSignal): Promise<Response>;
  /** For a while nothing was heard of changes of these kinds, nor of those of resources. */
  onGap(kinds: readonly Kind[]): void;
  log(level: "debug" | "warn", text: string): void;
}

/** The dialect that a server was found to speak. */
export function chooseDialect(handshake: ServerHandshake, parts: DialectOptions): Dialect {
  const { protocol: spoken, features, announcedKinds: announces } = handshake;
  const { pending } = parts;
  if (spoken.era === "legacy") {
    return new LegacyDialect({
      ...parts,
      version: spoken.version,
      hasLevels: features.has("logging"),
      post: (method, params) => pending.post(method, params),
    });
  }
  const dialect: ModernDialect = new ModernDialect({
    ...parts,
    version: spoken.version,
    log: (text) => parts.log("debug", text),
    listening: new ListenSubscription({
      ...parts,
      announcedKinds: announces,
      filterKeys: new Set([
        ...(features.has("subscriptions") ? (["resourceSubscriptions"] as const) : []),
        ...(features.has("tasks") ? (["taskIds"] as const) : []),
      ]),
      completeParams: (params) => dialect.complete(params),
      onGap: () => parts.onGap([...announces]),
      warn: (text) => parts.log("warn", text),
    }),
  });
  return dialect;
}
