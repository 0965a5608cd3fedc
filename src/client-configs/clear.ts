import { findSuspectedSecrets, isSecretName } from "../manifest/plaintext-secrets.ts";
import { isTable } from "../manifest/table.ts";
import type { ServerEntry } from "./entry.ts";
import { secretName } from "./forms.ts";

/** A value in an entry that looks like a secret in plain text. */
export interface PlaintextSecret {
  /** Its path in the entry: `["env", "TOKEN"]`, `["args", 2]`. */
  readonly path: readonly (string | number)[];
  /** The path for people: `env.TOKEN`. */
  readonly label: string;
  /** The name that the secret would be stored under. */
  readonly secretName: string;
  readonly value: string;
}

/** Finds the values in an entry (in the manifest's schema) that look like secrets in plain text. */
export function findPlaintextSecrets(
  entry: ServerEntry,
  server: string,
): readonly PlaintextSecret[] {
  const found: PlaintextSecret[] = [];
  const add = (path: PlaintextSecret["path"], name: string, value: string): void => {
    // A value with a placeholder refers to a secret stored elsewhere already; literal signs are escaped as `$${`.
    if (value.includes("${")) return;
    const secret = secretName(server, name);
    const isTaken = found.some((each) => each.secretName === secret && each.value !== value);
    const unique = isTaken ? `${secret}-${found.length + 1}` : secret;
    found.push({ path, label: path.join("."), secretName: unique, value });
  };
  /** @param owner prefix for the name of a part, where that name alone would not say whose it is */
  const inspect = (path: PlaintextSecret["path"], name: string, text: string, owner = ""): void => {
    for (const { part, value } of findSuspectedSecrets(name, text)) {
      add(path, part === undefined ? name : `${owner}${part}`, value);
    }
  };
  for (const key of ["env", "headers"]) {
    const table = entry[key];
    for (const [name, text] of Object.entries(isTable(table) ? table : {})) {
      if (typeof text !== "string") continue;
      // The scheme of `Bearer …` is not part of the secret.
      const [, credentials] = key === "headers" ? (AUTHORIZATION_VALUE.exec(text) ?? []) : [];
      inspect([key, name], name, credentials ?? text, `${name}-`);
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
      isSecretName(before) &&
      !arg.startsWith("-");
    if (isValue) inspect(["args", at], before, arg);
    else if (/^\w+:\/\//.test(arg)) inspect(["args", at], `arg-${at}`, arg);
    else if (named !== null && !/^[A-Za-z]:[\\/]/.test(arg)) {
      const [, name = "", value = ""] = named;
      inspect(["args", at], name, AUTHORIZATION_VALUE.exec(value)?.[1] ?? value);
    } else inspect(["args", at], `arg-${at}`, arg);
  }
  const { command, cwd, url, oauth } = entry;
  for (const [key, text] of Object.entries({ command, cwd, url })) {
    if (typeof text === "string") inspect([key], key, text);
  }
  for (const [name, text] of Object.entries(isTable(oauth) ? oauth : {})) {
    if (typeof text === "string") inspect(["oauth", name], name, text);
  }
  return found;
}

const AUTHORIZATION_VALUE = /^(?:Bearer|Basic|Token|ApiKey|Key) +(\S.*)$/i;

/** Replaces such values in the entry by `${secret:…}`. */
export function replacePlaintextSecrets(
  entry: ServerEntry,
  secrets: readonly PlaintextSecret[],
): ServerEntry {
  return secrets.reduce((at, { path, value, secretName: secret }) => {
    return replaceAt(at, path, (text) =>
      text.replace(value, () => `\${secret:${secret}}`),
    ) as ServerEntry;
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
