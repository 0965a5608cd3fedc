import { isAbsolute, join } from "node:path";
import { type Env, safeHomeFolder } from "../base/paths.ts";
import type { Table } from "../manifest/table.ts";

import type { ClientName } from "./client-names.ts";

/** The folders that clients keep their files in, absolute. */
export interface ClientFolders {
  readonly home: string;
  /** XDG_CONFIG_HOME or `~/.config`, also on macOS, where some clients use it. */
  readonly config: string;
  /** The platform's folder for application data: XDG_CONFIG_HOME, `~/Library/Application Support`, or `%APPDATA%`. */
  readonly support: string;
  readonly env: Env;
  readonly platform: string;
}

/** A table of servers in a client's file. */
export interface ServerTable {
  /** Absolute; in `Client.project` relative to the project's folder. */
  readonly file: string;
  /** The path of keys to the table; `*` stands for every key. */
  readonly keys: readonly string[];
}

/**
 * The placeholders that a client fills in: none; those of editors (`${env:NAME}`, `${input:…}`, `${workspaceFolder}`);
 * those of shells (`${NAME}`, `${NAME:-default}`, `$NAME`); or braces alone (`{env:NAME}`).
 */
export type PlaceholderStyle = "none" | "editor" | "dollar" | "braces";

/**
 * A time limit in a client's entry: its key, the ms per unit of its value, and the manifest's limit it corresponds to.
 */
export interface ClientLimit {
  readonly key: string;
  readonly msPerUnit: number;
  readonly manifestLimit: "connectTimeout" | "callTimeout";
}

/** A program that starts MCP servers from a configuration file. */
export interface ClientApp {
  readonly name: ClientName;
  readonly title: string;
  readonly format: "json" | "toml";
  readonly placeholders: PlaceholderStyle;
  /** The files of this user. toolmux is installed into the first that exists, or else into the first. */
  readonly user: (home: ClientFolders) => readonly ServerTable[];
  /** The files in a project's folder, in the same order. */
  readonly project: readonly ServerTable[];
  readonly limits: readonly ClientLimit[];
  /** The entry that makes the client start a program. */
  readonly command: (command: string, args: readonly string[]) => Table;
  /**
   * The entry that makes the client connect to a URL, with a bearer token from a variable if one is given. undefined:
   * the client's file cannot express this.
   */
  readonly remote: (url: string, variable: string | undefined) => Table | undefined;
  /** What the user must do for the client to load the change: a whole sentence. */
  readonly restartHint: string;
}

export function clientFoldersOf(env: Env, platform: string): ClientFolders {
  const home = safeHomeFolder(env);
  const xdg = env["XDG_CONFIG_HOME"];
  const config = xdg !== undefined && isAbsolute(xdg) ? xdg : join(home, ".config");
  const roaming = env["APPDATA"] || join(home, "AppData", "Roaming");
  const library = join(home, "Library", "Application Support");
  const support = platform === "darwin" ? library : platform === "win32" ? roaming : config;
  return { home, config, support, env, platform };
}
