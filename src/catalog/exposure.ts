import type { Kind } from "./listing.ts";
import type { ToolOverrides } from "./tool-overrides.ts";

/** The kinds whose items have names, which clients see with a prefix; items of the other kinds have URIs. */
export type NamedKind = "tools" | "prompts";

export function isNamed(kind: Kind): kind is NamedKind {
  return kind === "tools" || kind === "prompts";
}

/** The manifest's settings for a server's tools or prompts. All keys are names at the server (remote names). */
export interface ExposureRules extends ToolOverrides {
  /** The prefix of the names that clients see; empty for names without a prefix. */
  readonly prefix: string;
  /** Globs; undefined allows everything. */
  readonly allow: readonly string[] | undefined;
  readonly deny: readonly string[];
  readonly rename: Readonly<Record<string, string>>;
  /** Approval levels, by names and globs of tools. They do not change what clients see. */
  readonly approval?: Readonly<Record<string, string>> | undefined;
  /** Limits of calls, by names and globs of tools. They do not change what clients see. */
  readonly limits?: Readonly<Record<string, object>> | undefined;
  /** Time limits of tools, in ms. They do not change what clients see. */
  readonly timeout?: Readonly<Record<string, number>> | undefined;
}

/** Explains why clients do not see a server's entry, or see it changed or renamed. */
export interface ExposureNote {
  readonly server: string;
  /** The server's list that contains the entry. */
  readonly list: Kind;
  readonly remoteName: string;
  readonly kind:
    | "filtered"
    | "hidden"
    | "duplicate"
    | "clash"
    | "shortened"
    /** A glob of `allow` or `deny` matches nothing that the server lists; `remoteName` is the glob. */
    | "idleFilter"
    /** The manifest has a setting for a tool or prompt that the server does not list, or that is hidden. */
    | "idleOverride"
    /** The manifest sets a member of a tool to another value than the server does. */
    | "conflict"
    /**
     * The entry does not conform to the official schemas: it is shown with changes (conformed) or hidden (unreadable).
     */
    | "conformed"
    | "unreadable";
  readonly text: string;
}
