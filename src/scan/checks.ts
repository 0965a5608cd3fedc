import { escapeDeceptive } from "../base/escape.ts";

/**
 * The checks of the scan. Those of `HARD_CHECKS` find what has no place in the definition of a tool; a finding of them
 * is hard, unless the text is quoted, or speaks of attacks that a tool detects. Those of `SOFT_CHECKS` find what
 * harmless tools have, too.
 *
 * - `hidden-character`: characters that a person does not see and a model reads.
 * - `decoded-payload`: encoded text that is a command of a shell, or a phrase of the other checks.
 * - `override`: the model is told to ignore instructions that it has.
 * - `reveal`: the model is told to reveal its instructions.
 * - `concealment`: the user is not to know what the model does.
 * - `pseudo-tag`: tags or tokens that imitate those of a model's own instructions.
 * - `role`: text that poses as a message of the system or of the user.
 * - `exfiltrate`: private data are to be sent away.
 * - `credentials`: files with credentials are to be read and handed over.
 * - `shadowing`: a tool of another server is to be used, replaced or changed.
 * - `imperative`: the model is told what to do besides this call.
 * - `exfil-url`: an address that collects what is sent to it, or a bare IP address.
 * - `secret`: a key or token in the definition.
 * - `conditional`: the tool behaves in another way after some time, or after it was accepted.
 * - `capability`: the tool does what its name does not say.
 */
export const HARD_CHECKS = [
  "hidden-character",
  "decoded-payload",
  "override",
  "reveal",
  "concealment",
  "pseudo-tag",
  "role",
  "exfiltrate",
  "credentials",
  "shadowing",
] as const;

export const SOFT_CHECKS = [
  "imperative",
  "exfil-url",
  "secret",
  "conditional",
  "capability",
] as const;

export const CHECKS = [...HARD_CHECKS, ...SOFT_CHECKS] as const;
export type Check = (typeof CHECKS)[number];

/** What a check has found in one text of an entry. */
export interface Finding {
  readonly check: Check;
  /** Whether no harmless tool is known to have such a text. */
  readonly hard: boolean;
  /** The text, by its path in the entry: `description`, `inputSchema.properties.path.description`. */
  readonly where: string;
  /**
   * The place in one line, at most 160 UTF-16 units: control and invisible characters escaped, secrets masked. It is a
   * server's text, for people only.
   */
  readonly excerpt: string;
}

/** What is scanned of a server. */
export type ScannedKind = "tool" | "prompt" | "instructions";

/** A finding, with the entry of the server that it is in. */
export interface EntryFinding extends Finding {
  readonly kind: ScannedKind;
  /** The name at the server; `instructions` for the instructions. */
  readonly name: string;
}

/** The place of a finding for people, such as `tool "x", description`. */
export function describePlace({ kind, name, where }: EntryFinding): string {
  return kind === "instructions" ? "instructions" : `${kind} "${escapeDeceptive(name)}", ${where}`;
}
