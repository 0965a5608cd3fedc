import type { Draft } from "./file-config.ts";
import type { Fault, Placed } from "./source.ts";

/** Whether a prefix is valid: names with it split in one way only. The empty prefix is valid. */
export function isPrefix(text: string, separator: string): boolean {
  return (
    /^[A-Za-z0-9_-]*$/.test(text) &&
    !text.includes(separator) &&
    (text === "" || !(separator.includes(text.charAt(0)) || separator.includes(text.slice(-1))))
  );
}

/** The valid, non-empty prefix that is nearest to `text`. */
export function sanitizePrefix(text: string, separator: string): string {
  const filler = separator === "_" ? "-" : "_";
  let prefix = text.replaceAll(/[^A-Za-z0-9_-]+/g, filler);
  // Terminates: the filler is shorter than the separator, or differs from it.
  while (prefix.includes(separator)) prefix = prefix.replaceAll(separator, filler);
  while (prefix !== "" && separator.includes(prefix.charAt(0))) prefix = prefix.slice(1);
  while (prefix !== "" && separator.includes(prefix.slice(-1))) prefix = prefix.slice(0, -1);
  if (prefix !== "") return prefix;
  return isPrefix("server", separator) ? "server" : (findSymbols(separator)[0] ?? "");
}

export interface Assigned {
  /** Server → prefix. */
  readonly prefixes: ReadonlyMap<string, string>;
  readonly faults: readonly Fault[];
  readonly notes: readonly string[];
}

interface PrefixOptions {
  readonly separator: string;
  /** Whether a server has a problem of its own: it takes no prefix from others, except the one in force for it. */
  readonly isWrong: (server: Placed) => boolean;
  /** The prefixes of running servers. */
  readonly inForce: ReadonlyMap<string, string>;
}

/**
 * Assigns every server its prefix. In manifests, an invalid or duplicate prefix is a problem; of two servers with the
 * same prefix, the one that is not running gets it, else the later one. Servers of clients' files, which cannot set a
 * prefix, come after them and get the nearest free one.
 */
export function assignPrefixes(
  servers: readonly Placed[],
  { separator, isWrong, inForce }: PrefixOptions,
): Assigned {
  const prefixes = new Map<string, string>();
  const faults: Fault[] = [];
  const notes: string[] = [];
  const owners = new Map<string, Placed>();

  const claim = (server: Placed, prefix: string) => {
    prefixes.set(server.name, prefix);
    if (isEnabled(server.draft) && prefix !== "") owners.set(prefix, server);
  };

  for (const server of servers) {
    const prefix = inForce.get(server.name) ?? "";
    if (isWrong(server) && isEnabled(server.draft) && prefix !== "") owners.set(prefix, server);
  }
  const give = (server: Placed): void => {
    const said = getPrefix(server.draft);
    const prefix = said ?? server.name;
    const owner = isEnabled(server.draft) ? owners.get(prefix) : undefined;
    const isClash = owner !== undefined && owner !== server;
    const message = isPrefix(prefix, separator)
      ? isClash && describeClash(prefix, owner, server)
      : describeRule(server.name, said, separator);
    if (message === false) claim(server, prefix);
    else if (said === undefined) faults.push({ ...locate(server), at: "key", message });
    else {
      const { source, path } = locate(server);
      faults.push({ source, path: [...path, "prefix"], at: "value", message });
    }
  };

  const own = servers.filter((server) => isOwn(server.draft));
  const right = own.filter((server) => !isWrong(server));
  const runs = (server: Placed): boolean =>
    inForce.get(server.name) === (getPrefix(server.draft) ?? server.name);
  for (const server of right.filter(runs)) give(server);
  for (const server of right.filter((it) => !runs(it))) give(server);

  for (const server of servers.filter(({ draft }) => !isOwn(draft))) {
    const said = getPrefix(server.draft) ?? server.name;
    const nearest = said === "" && server.name !== "" ? "" : sanitizePrefix(said, separator);
    const isClaimed = isEnabled(server.draft) && nearest !== "";
    const prefix = isClaimed ? varyPrefix(nearest, separator, owners) : nearest;
    claim(server, prefix);
    if (prefix !== said && server.draft.kind !== "unsupported") {
      const name = JSON.stringify(server.name);
      notes.push(`${server.source.file}: server ${name} gets the prefix "${prefix}"`);
    }
  }

  // Reports the remaining problems of invalid servers, which take no prefix from valid ones.
  for (const server of own.filter(isWrong)) give(server);
  return { prefixes, faults, notes };
}

/** `base`, or `base` with the shortest suffix that makes it free. */
function varyPrefix(base: string, separator: string, taken: ReadonlyMap<string, unknown>): string {
  const symbols = findSymbols(separator);
  for (let length = 1; taken.has(base) && symbols.length > 0; length++) {
    const free = symbols.map((it) => base + it.repeat(length)).find((it) => !taken.has(it));
    if (free !== undefined) return free;
  }
  return base;
}

/** Characters that are allowed anywhere in a prefix. */
function findSymbols(separator: string): readonly string[] {
  return "23456789abcdefghijklmnopqrstuvwxyz01".split("").filter((it) => !separator.includes(it));
}

function describeRule(name: string, said: string | undefined, separator: string): string {
  const rule = `letters, digits, _ and -, without "${separator}" and no character of it at either end`;
  const nearest = sanitizePrefix(name, separator);
  return said === undefined
    ? `cannot be used as the prefix (${rule}); add prefix = "${nearest}"`
    : `expected ${rule}; found ${JSON.stringify(said)}`;
}

function describeClash(prefix: string, owner: Placed, server: Placed): string {
  const names = [owner, server].map(({ name }) => JSON.stringify(name)).join(" and ");
  return `the servers ${names} have the same prefix "${prefix}"; give one of them another prefix = "…"`;
}

function locate({ source, draft }: Placed) {
  return { source, path: draft.path };
}

function isOwn(draft: Draft): boolean {
  return draft.kind === "plugin" || ("syntax" in draft && draft.syntax === "toolmux");
}

function isEnabled(draft: Draft): boolean {
  return draft.kind !== "unsupported" && draft.input.enabled !== false;
}

function getPrefix(draft: Draft): string | undefined {
  return draft.kind === "unsupported" ? undefined : draft.input.prefix;
}
