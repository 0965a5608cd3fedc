/** Time limits in the entries of clients. Clients disagree about units, so a limit counts only where its client is known. */

import { createTable, type Table } from "../table.ts";

/**
 * A time limit in a client's entry: its key, the number of ms per unit of its value, and the corresponding limit of
 * the manifest.
 */
export interface ClientLimit {
  readonly key: string;
  readonly msPerUnit: number;
  readonly manifestLimit: "connectTimeout" | "callTimeout";
}

const milliseconds = (key: string, manifestLimit: ClientLimit["manifestLimit"]): ClientLimit => ({
  key,
  msPerUnit: 1,
  manifestLimit,
});
const seconds = (key: string, manifestLimit: ClientLimit["manifestLimit"]): ClientLimit => ({
  key,
  msPerUnit: 1000,
  manifestLimit,
});

interface LimitsOfClient {
  readonly limits: readonly ClientLimit[];
  /** The paths, with slashes, of the client's files that can be loaded as manifests. */
  readonly files?: RegExp;
}

/** The limits of the clients that have some, by the client's name. */
const CLIENT_LIMITS: Readonly<Record<string, LimitsOfClient>> = {
  "claude-code": {
    limits: [milliseconds("timeout", "callTimeout")],
    files: /\/(?:\.mcp|\.claude)\.json$/,
  },
  codex: {
    limits: [
      seconds("startup_timeout_sec", "connectTimeout"),
      milliseconds("startup_timeout_ms", "connectTimeout"),
      seconds("tool_timeout_sec", "callTimeout"),
    ],
  },
  "gemini-cli": {
    limits: [milliseconds("timeout", "callTimeout")],
    files: /\/\.gemini\/settings\.json$/,
  },
  "qwen-code": {
    limits: [milliseconds("timeout", "callTimeout")],
    files: /\/\.qwen\/settings\.json$/,
  },
  cline: {
    limits: [seconds("timeout", "callTimeout")],
    files: /\/cline_mcp_settings\.json$/,
  },
  "roo-code": {
    limits: [seconds("timeout", "callTimeout")],
    files: /\/(?:\.roo\/mcp|rooveterinaryinc\.roo-cline\/settings\/mcp_settings)\.json$/,
  },
  "lm-studio": {
    limits: [milliseconds("timeout", "callTimeout")],
    files: /\/\.lmstudio\/mcp\.json$/,
  },
  opencode: { limits: [milliseconds("timeout", "connectTimeout")] },
  "amazon-q": {
    limits: [milliseconds("timeout", "callTimeout")],
    files: /\/\.(?:aws\/)?amazonq\/mcp\.json$/,
  },
};

/** The limits in the entries of a client. */
export function limitsOfClient(client: string): readonly ClientLimit[] {
  return CLIENT_LIMITS[client]?.limits ?? [];
}

/** The limits in the entries of a client's file; none if its path does not tell the client. @param file absolute */
export function limitsInFile(file: string): readonly ClientLimit[] {
  const path = file.replaceAll("\\", "/");
  return Object.values(CLIENT_LIMITS).find(({ files }) => files?.test(path) === true)?.limits ?? [];
}

/**
 * Maximum time limit that is taken over, in ms. It equals the manifest's default for `maxCallTimeout`, which no limit
 * of a call may exceed.
 */
const MAX_TIME_LIMIT = 900_000;

/** The limits of an entry in the manifest's form, and the client's keys that they were read from. */
export function readClientLimits(
  fields: ReadonlyMap<string, unknown>,
  limits: readonly ClientLimit[],
): { readonly entry: Table; readonly keys: ReadonlySet<string> } {
  const entry = createTable<unknown>();
  const keys = new Set<string>();
  for (const { key, msPerUnit, manifestLimit } of limits) {
    const value = fields.get(key);
    const ms = typeof value === "number" ? Math.round(value * msPerUnit) : 0;
    if (!(ms >= 1 && ms <= MAX_TIME_LIMIT)) continue;
    entry[manifestLimit] = ms % 1000 === 0 ? `${ms / 1000}s` : ms;
    keys.add(key);
  }
  return { entry, keys };
}
