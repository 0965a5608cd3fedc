import { HubError } from "../base/errors.ts";
import { escapeInvisible } from "../base/quote.ts";
import type { PinLevel, RunnableServer } from "../manifest/manifest.ts";
import type { PendingReason } from "./baseline.ts";

/** What happens when a server lists something else than what was accepted. */
export function pinLevelOf({ pin = "warn" }: Pick<RunnableServer, "pin">): PinLevel {
  return pin;
}

/** Why a tool or prompt must not be used. `unknown`: it could not be compared; `fault` says why, as a sentence. */
export interface PinRefusal {
  readonly reason: PendingReason | "unknown";
  readonly fault?: string;
}

/**
 * The error for a request of a tool or prompt that is not accepted.
 * @param name the name that clients see
 * @param wasSent whether the request was sent once already, and its answer was lost or is not complete
 */
export function notAcceptedError(
  server: string,
  name: string,
  { reason, fault }: PinRefusal,
  wasSent = false,
): HubError {
  const what = `"${escapeInvisible(name)}"`;
  const see = `See: toolmux pins ${server}`;
  const text = {
    changed: `${what} has changed since you accepted it. ${see}`,
    new: `${what} is new, and not accepted yet. ${see}`,
    finding: `${what} has suspicious text, and is not accepted. ${see}`,
    pinFile: `${what} is not what the pin file has. ${see}`,
    unknown: `${what} was not called, because it could not be compared with what was accepted. ${fault ?? see}`,
  }[reason];
  const again = wasSent ? " It was not sent a second time; the first time, it may have run." : "";
  return new HubError(wasSent ? "answerLost" : "notAccepted", text + again, { server });
}
