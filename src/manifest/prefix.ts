import type { ServerConfig } from "./file-config.ts";
import type { SourcedProblem, SourcedServer } from "./source.ts";

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
  return isPrefix("server", separator) ? "server" : (symbolsFor(separator)[0] ?? "");
}

export interface PrefixAssignment {
  /** Server → prefix. */
  readonly prefixes: ReadonlyMap<string, string>;
  readonly problems: readonly SourcedProblem[];
  readonly notes: readonly string[];
}

interface PrefixOptions {
  readonly separator: string;
  /** Whether a server has a problem of its own: it takes no prefix from others, except the one in force for it. */
  readonly isInvalid: (server: SourcedServer) => boolean;
  /** The prefixes of running servers. */
  readonly runningPrefixes: ReadonlyMap<string, string>;
}

/**
 * Assigns every server its prefix. In manifests, an invalid or duplicate prefix is a problem; of two servers with the
 * same prefix, the one that is not running gets it, else the later one. Servers of clients' files, which cannot set a
 * prefix, come after them and get the nearest free one.
 */
export function assignPrefixes(
  servers: readonly SourcedServer[],
  { separator, isInvalid, runningPrefixes }: PrefixOptions,
): PrefixAssignment {
  const prefixes = new Map<string, string>();
  const problems: SourcedProblem[] = [];
  const notes: string[] = [];
  const owners = new Map<string, SourcedServer>();

  const assign = (server: SourcedServer, prefix: string) => {
    prefixes.set(server.name, prefix);
    if (isEnabled(server.serverConfig) && prefix !== "") owners.set(prefix, server);
  };

  for (const server of servers) {
    const prefix = runningPrefixes.get(server.name) ?? "";
    if (isInvalid(server) && isEnabled(server.serverConfig) && prefix !== "")
      owners.set(prefix, server);
  }
  const assignOrReport = (server: SourcedServer): void => {
    const configured = configuredPrefixOf(server.serverConfig);
    const prefix = configured ?? server.name;
    const owner = isEnabled(server.serverConfig) ? owners.get(prefix) : undefined;
    const isClash = owner !== undefined && owner !== server;
    const message = isPrefix(prefix, separator)
      ? isClash && duplicatePrefixMessage(prefix, owner, server)
      : invalidPrefixMessage(server.name, configured, separator);
    if (message === false) assign(server, prefix);
    else if (configured === undefined)
      problems.push({ ...sourcePathOf(server), at: "key", message });
    else {
      const { source, path } = sourcePathOf(server);
      problems.push({ source, path: [...path, "prefix"], at: "value", message });
    }
  };

  const manifestServers = servers.filter((server) => isFromManifest(server.serverConfig));
  const validServers = manifestServers.filter((server) => !isInvalid(server));
  const isRunning = (server: SourcedServer): boolean =>
    runningPrefixes.get(server.name) === (configuredPrefixOf(server.serverConfig) ?? server.name);
  for (const server of validServers.filter(isRunning)) assignOrReport(server);
  for (const server of validServers.filter((it) => !isRunning(it))) assignOrReport(server);

  for (const server of servers.filter(({ serverConfig }) => !isFromManifest(serverConfig))) {
    const configured = configuredPrefixOf(server.serverConfig) ?? server.name;
    const nearest =
      configured === "" && server.name !== "" ? "" : sanitizePrefix(configured, separator);
    const isClaimed = isEnabled(server.serverConfig) && nearest !== "";
    const prefix = isClaimed ? freePrefix(nearest, separator, owners) : nearest;
    assign(server, prefix);
    if (prefix !== configured && server.serverConfig.kind !== "unsupported") {
      const name = JSON.stringify(server.name);
      notes.push(`${server.source.file}: server ${name} gets the prefix "${prefix}"`);
    }
  }

  // Reports the remaining problems of invalid servers, which take no prefix from valid ones.
  for (const server of manifestServers.filter(isInvalid)) assignOrReport(server);
  return { prefixes, problems, notes };
}

/** `base`, or `base` with the shortest suffix that makes it free. */
function freePrefix(base: string, separator: string, taken: ReadonlyMap<string, unknown>): string {
  const symbols = symbolsFor(separator);
  for (let length = 1; taken.has(base) && symbols.length > 0; length++) {
    const free = symbols.map((it) => base + it.repeat(length)).find((it) => !taken.has(it));
    if (free !== undefined) return free;
  }
  return base;
}

/** Characters that are allowed anywhere in a prefix. */
function symbolsFor(separator: string): readonly string[] {
  return "23456789abcdefghijklmnopqrstuvwxyz01".split("").filter((it) => !separator.includes(it));
}

function invalidPrefixMessage(
  name: string,
  configured: string | undefined,
  separator: string,
): string {
  const rule = `letters, digits, _ and -, without "${separator}" and no character of it at either end`;
  const nearest = sanitizePrefix(name, separator);
  return configured === undefined
    ? `cannot be used as the prefix (${rule}); add prefix = "${nearest}"`
    : `expected ${rule}; found ${JSON.stringify(configured)}`;
}

function duplicatePrefixMessage(
  prefix: string,
  owner: SourcedServer,
  server: SourcedServer,
): string {
  const names = [owner, server].map(({ name }) => JSON.stringify(name)).join(" and ");
  return `the servers ${names} have the same prefix "${prefix}"; give one of them another prefix = "…"`;
}

function sourcePathOf({ source, serverConfig }: SourcedServer) {
  return { source, path: serverConfig.path };
}

function isFromManifest(serverConfig: ServerConfig): boolean {
  return (
    serverConfig.kind === "plugin" ||
    ("syntax" in serverConfig && serverConfig.syntax === "toolmux")
  );
}

function isEnabled(serverConfig: ServerConfig): boolean {
  return serverConfig.kind !== "unsupported" && serverConfig.input.enabled !== false;
}

function configuredPrefixOf(serverConfig: ServerConfig): string | undefined {
  return serverConfig.kind === "unsupported" ? undefined : serverConfig.input.prefix;
}
