import { count } from "../base/format.ts";
import { HubError } from "../base/errors.ts";
import { escapeDeceptive, escapeInvisible } from "../base/escape.ts";
import type { PinLevel, RunnableServer } from "../manifest/manifest.ts";
import type { PinnedKind } from "../manifest/pin-file.ts";
import type { PendingReason } from "./baseline.ts";

/** What happens when a server lists something else than what was accepted. */
export function pinLevelOf({ pin = "warn" }: Pick<RunnableServer, "pin">): PinLevel {
  return pin;
}

/** What is not accepted of a server. */
export interface UnacceptedDefinitions {
  readonly server: string;
  readonly pin: PinLevel;
  /** Why nothing of the server counts as accepted, as a sentence. */
  readonly fault?: string | undefined;
  readonly pending: readonly {
    readonly kind: PinnedKind;
    readonly name: string;
    readonly reason: PendingReason;
  }[];
}

/** Why a definition is not accepted, in a few words. */
export const PENDING_REASONS: Readonly<Record<PendingReason, string>> = {
  new: "new",
  changed: "changed",
  finding: "suspicious text",
  pinFile: "not as in the pin file",
};

/** A definition in words: `"read"`, `prompt "review"`, `its instructions`. */
export function nameOf({
  kind,
  name,
}: Pick<UnacceptedDefinitions["pending"][number], "kind" | "name">): string {
  if (kind === "instructions") return "its instructions";
  const quoted = `"${escapeDeceptive(name)}"`;
  return kind === "prompt" ? `prompt ${quoted}` : quoted;
}

/** Maximum number of names in a sentence. */
export const MAX_NAMES = 20;

/** What is hidden of a server because it is not accepted, and what to do; undefined: nothing is. */
export function describeWithheld({
  server,
  pin,
  fault,
  pending,
}: UnacceptedDefinitions): { readonly text: string; readonly advice: string } | undefined {
  if (pin !== "block") return undefined;
  if (fault !== undefined) return { text: "Nothing of it is shown or called.", advice: fault };
  if (pending.length === 0) return undefined;
  const names = pending
    .slice(0, MAX_NAMES)
    .map((each) => `${nameOf(each)} (${PENDING_REASONS[each.reason]})`)
    .join(", ");
  const rest = pending.length - MAX_NAMES;
  const more = rest > 0 ? ` and ${rest} more` : "";
  const verb = pending.length === 1 ? "is" : "are";
  const text = `${count(pending.length, "definition")} ${verb} not accepted, so neither shown nor called: ${names}${more}.`;
  return { text, advice: adviceOnWithheld(server) };
}

/** What a person does about a definition that is not accepted. */
export function adviceOnWithheld(server: string): string {
  return `To see and accept it: toolmux pins ${server}`;
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
