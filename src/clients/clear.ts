import { findSuspects, isTelling } from "../manifest/suspicion.ts";
import { isTable } from "../manifest/table.ts";
import type { OwnEntry } from "./entry.ts";
import { secretName } from "./forms.ts";

/** A value that looks like a secret and stands in an entry as it is. */
export interface Clear {
  /** Where, from the entry: `["env", "TOKEN"]`, `["args", 2]`. */
  readonly path: readonly (string | number)[];
  /** What it is called there, for people: `env.TOKEN`. */
  readonly label: string;
  /** Under what it would be kept. */
  readonly secret: string;
  readonly value: string;
}

/** What of an entry in our own schema looks like a secret and stands there as it is. */
export function findClear(entry: OwnEntry, server: string): readonly Clear[] {
  const found: Clear[] = [];
  const add = (path: Clear["path"], name: string, value: string): void => {
    // One that is spelled with a form is kept somewhere else already; what is not one is escaped with two signs.
    if (value.includes("${")) return;
    const secret = secretName(server, name);
    const isTaken = found.some((each) => each.secret === secret && each.value !== value);
    const unique = isTaken ? `${secret}-${found.length + 1}` : secret;
    found.push({ path, label: path.join("."), secret: unique, value });
  };
  /** @param owner what a part's own name is put behind, where that alone would not say whose it is */
  const look = (path: Clear["path"], name: string, text: string, owner = ""): void => {
    for (const { part, value } of findSuspects(name, text)) {
      add(path, part === undefined ? name : `${owner}${part}`, value);
    }
  };
  for (const key of ["env", "headers"]) {
    const table = entry[key];
    for (const [name, text] of Object.entries(isTable(table) ? table : {})) {
      if (typeof text !== "string") continue;
      // `Bearer …`: the scheme is none of it.
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

/** The entry with forms in the place of such values. */
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
