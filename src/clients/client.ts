import { isAbsolute, join } from "node:path";
import { type Env, homeFolder } from "../manifest/folders.ts";
import type { Table } from "../manifest/table.ts";

import type { ClientName } from "./names.ts";

/** The folders that clients keep their files in, absolute. */
export interface Home {
  readonly home: string;
  /** XDG's, also on macOS, where some clients use it. */
  readonly config: string;
  /** What the platform has for such files: XDG's, `Library/Application Support`, or `%APPDATA%`. */
  readonly support: string;
  readonly env: Env;
  readonly platform: string;
}

/** A table of servers in a client's file. */
export interface Spot {
  /** Absolute; of a project, from its folder. */
  readonly file: string;
  /** The keys that lead there; `*`: every key. */
  readonly keys: readonly string[];
}

/**
 * How a client fills in its texts: not at all, as editors do (`${env:NAME}`, `${input:…}`, `${workspaceFolder}`) and shells
 * (`${NAME}`, `${NAME:-default}`), also without braces (`$NAME`), or with braces alone (`{env:NAME}`).
 */
export type Forms = "none" | "editor" | "dollar" | "braces";

/** A limit that a client's entry has: its key, how many ms one of it is, and which of ours that is. */
export interface Limit {
  readonly key: string;
  readonly unit: number;
  readonly limit: "connectTimeout" | "callTimeout";
}

/** A program that starts MCP servers, and how its file says which. */
export interface Client {
  readonly name: ClientName;
  readonly title: string;
  readonly format: "json" | "toml";
  readonly forms: Forms;
  /** Its files of this user; the first that is there, or else the first, is the one that it is installed in. */
  readonly user: (home: Home) => readonly Spot[];
  /** Its files in the folder of a project, in the same order. */
  readonly project: readonly Spot[];
  readonly limits: readonly Limit[];
  /** The entry that makes it start a program. */
  readonly command: (command: string, args: readonly string[]) => Table;
  /**
   * The entry that makes it go to a URL, with a token from a variable if one is named. undefined: it cannot go anywhere
   * by its file, or not with a token.
   */
  readonly remote: (url: string, variable: string | undefined) => Table | undefined;
  /** What has to be done so that it takes what its file says: a whole sentence. */
  readonly advice: string;
}

export function findHome(env: Env, platform: string): Home {
  const home = homeFolder(env);
  const xdg = env["XDG_CONFIG_HOME"];
  const config = xdg !== undefined && isAbsolute(xdg) ? xdg : join(home, ".config");
  const roaming = env["APPDATA"] || join(home, "AppData", "Roaming");
  const library = join(home, "Library", "Application Support");
  const support = platform === "darwin" ? library : platform === "win32" ? roaming : config;
  return { home, config, support, env, platform };
}
