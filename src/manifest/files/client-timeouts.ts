/** Timeouts in the entries of clients. Clients disagree about units, so a timeout counts only where its client is known. */

import { createTable, type Table } from "../table.ts";

/**
 * A timeout in a client's entry: its key, the number of ms per unit of its value, and the corresponding limit of
 * the manifest.
 */
export interface ClientTimeout {
  readonly key: string;
  readonly msPerUnit: number;
  readonly manifestLimit: "connectTimeout" | "callTimeout";
}

const milliseconds = (
  key: string,
  manifestLimit: ClientTimeout["manifestLimit"],
): ClientTimeout => ({
  key,
  msPerUnit: 1,
  manifestLimit,
});
const seconds = (key: string, manifestLimit: ClientTimeout["manifestLimit"]): ClientTimeout => ({
  key,
  msPerUnit: 1000,
  manifestLimit,
});

interface TimeoutsOfClient {
  readonly timeouts: readonly ClientTimeout[];
  /** The paths, with slashes, of the client's files that can be loaded as manifests. */
  readonly files?: RegExp;
}

/** The timeouts of the clients that have some, by the client's name. */
const CLIENT_TIMEOUTS: Readonly<Record<string, TimeoutsOfClient>> = {
  "claude-code": {
    timeouts: [milliseconds("timeout", "callTimeout")],
    files: /\/(?:\.mcp|\.claude)\.json$/,
  },
  codex: {
    timeouts: [
      seconds("startup_timeout_sec", "connectTimeout"),
      milliseconds("startup_timeout_ms", "connectTimeout"),
      seconds("tool_timeout_sec", "callTimeout"),
    ],
  },
  "gemini-cli": {
    timeouts: [milliseconds("timeout", "callTimeout")],
    files: /\/\.gemini\/settings\.json$/,
  },
  "qwen-code": {
    timeouts: [milliseconds("timeout", "callTimeout")],
    files: /\/\.qwen\/settings\.json$/,
  },
  cline: {
    timeouts: [seconds("timeout", "callTimeout")],
    files: /\/cline_mcp_settings\.json$/,
  },
  "roo-code": {
    timeouts: [seconds("timeout", "callTimeout")],
    files: /\/(?:\.roo\/mcp|rooveterinaryinc\.roo-cline\/settings\/mcp_settings)\.json$/,
  },
  "lm-studio": {
    timeouts: [milliseconds("timeout", "callTimeout")],
    files: /\/\.lmstudio\/mcp\.json$/,
  },
  opencode: { timeouts: [milliseconds("timeout", "connectTimeout")] },
  "amazon-q": {
    timeouts: [milliseconds("timeout", "callTimeout")],
    files: /\/\.(?:aws\/)?amazonq\/mcp\.json$/,
  },
};

/** The timeouts in the entries of a client. */
export function timeoutsOfClient(client: string): readonly ClientTimeout[] {
  return CLIENT_TIMEOUTS[client]?.timeouts ?? [];
}

/** The timeouts in the entries of a client's file; none if its path does not tell the client. @param file absolute */
export function timeoutsInFile(file: string): readonly ClientTimeout[] {
  const path = file.replaceAll("\\", "/");
  return (
    Object.values(CLIENT_TIMEOUTS).find(({ files }) => files?.test(path) === true)?.timeouts ?? []
  );
}

/**
 * Maximum time limit that is taken over, in ms. It equals the manifest's default for `maxCallTimeout`, which no limit
 * of a call may exceed.
 */
const MAX_TIME_LIMIT = 900_000;

/** The timeouts of an entry in the manifest's form, and the client's keys that they were read from. */
export function readClientTimeouts(
  fields: ReadonlyMap<string, unknown>,
  timeouts: readonly ClientTimeout[],
): { readonly entry: Table; readonly keys: ReadonlySet<string> } {
  const entry = createTable<unknown>();
  const keys = new Set<string>();
  for (const { key, msPerUnit, manifestLimit } of timeouts) {
    const value = fields.get(key);
    const ms = typeof value === "number" ? Math.round(value * msPerUnit) : 0;
    if (!(ms >= 1 && ms <= MAX_TIME_LIMIT)) continue;
    entry[manifestLimit] = ms % 1000 === 0 ? `${ms / 1000}s` : ms;
    keys.add(key);
  }
  return { entry, keys };
}
