import { findSuspects, isTelling } from "../manifest/plaintext-secrets.ts";
import { isTable } from "../manifest/table.ts";
import type { OwnEntry } from "./entry.ts";
import { secretName } from "./forms.ts";

/** A value in an entry that looks like a secret in plain text. */
export interface Clear {
  /** Its path in the entry: `["env", "TOKEN"]`, `["args", 2]`. */
  readonly path: readonly (string | number)[];
  /** The path for people: `env.TOKEN`. */
  readonly label: string;
  /** The name that the secret would be stored under. */
  readonly secret: string;
  readonly value: string;
}

/** Finds the values in an entry (in the manifest's schema) that look like secrets in plain text. */
export function findClear(entry: OwnEntry, server: string): readonly Clear[] {
  const found: Clear[] = [];
  const add = (path: Clear["path"], name: string, value: string): void => {
    // A value with a placeholder refers to a secret stored elsewhere already; literal signs are escaped as `$${`.
    if (value.includes("${")) return;
    const secret = secretName(server, name);
    const isTaken = found.some((each) => each.secret === secret && each.value !== value);
    const unique = isTaken ? `${secret}-${found.length + 1}` : secret;
    found.push({ path, label: path.join("."), secret: unique, value });
  };
  /** @param owner prefix for the name of a part, where that name alone would not say whose it is */
  const look = (path: Clear["path"], name: string, text: string, owner = ""): void => {
    for (const { part, value } of findSuspects(name, text)) {
      add(path, part === undefined ? name : `${owner}${part}`, value);
    }
  };
  for (const key of ["env", "headers"]) {
    const table = entry[key];
    for (const [name, text] of Object.entries(isTable(table) ? table : {})) {
      if (typeof text !== "string") continue;
      // The scheme of `Bearer …` is not part of the secret.
      const [, credentials] = key === "headers" ? (SCHEMED.exec(text) ?? []) : [];
      look([key, name], name, credentials ?? text, `${name}-`);
    }
  }
  const args: readonly unknown[] = Array.isArray(entry["args"]) ? entry["args"] : [];
  for (const [at, arg] of args.entries()) {
    if (typeof arg !== "string") continue;
    const before = args[at - 1];
    const named = /^(-{0,2}[\w.-]+)\s*[=:]\s*(.+)$/s.exec(arg);
    const isValue =
      typeof before === "string" &&
      /^--?[\w-]+$/.test(before) &&
      isTelling(before) &&
      !arg.startsWith("-");
    if (isValue) look(["args", at], before, arg);
    else if (/^\w+:\/\//.test(arg)) look(["args", at], `arg-${at}`, arg);
    else if (named !== null && !/^[A-Za-z]:[\\/]/.test(arg)) {
      const [, name = "", value = ""] = named;
      look(["args", at], name, SCHEMED.exec(value)?.[1] ?? value);
    } else look(["args", at], `arg-${at}`, arg);
  }
  const { command, cwd, url, oauth } = entry;
  for (const [key, text] of Object.entries({ command, cwd, url })) {
    if (typeof text === "string") look([key], key, text);
  }
  for (const [name, text] of Object.entries(isTable(oauth) ? oauth : {})) {
    if (typeof text === "string") look(["oauth", name], name, text);
  }
  return found;
}

const SCHEMED = /^(?:Bearer|Basic|Token|ApiKey|Key) +(\S.*)$/i;

/** Replaces such values in the entry by `${secret:…}`. */
export function hideClear(entry: OwnEntry, clear: readonly Clear[]): OwnEntry {
  return clear.reduce((at, { path, value, secret }) => {
    return replaceAt(at, path, (text) =>
      text.replace(value, () => `\${secret:${secret}}`),
    ) as OwnEntry;
  }, entry);
}

function replaceAt(
  at: unknown,
  [key, ...rest]: readonly (string | number)[],
  change: (text: string) => string,
): unknown {
  if (key === undefined) return typeof at === "string" ? change(at) : at;
  if (Array.isArray(at)) {
    return (at as readonly unknown[]).map((it, i) =>
      i === key ? replaceAt(it, rest, change) : it,
    );
  }
  if (!isTable(at)) return at;
  return { ...at, [key]: replaceAt(at[key], rest, change) };
}
