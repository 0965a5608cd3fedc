import { fileURLToPath } from "node:url";

/** A stdio server's table in the manifest. */
export interface ServerEntry {
  readonly command: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly [key: string]: unknown;
}

/** The table of a server in the manifest that is no process: it is reached by its URL, or provided by a plugin. */
export type RemoteEntry = { readonly [key: string]: unknown } & (
  { readonly url: string } | { readonly plugin: string }
);

export interface Manifest {
  readonly hub?: Readonly<Record<string, unknown>>;
  readonly defaults?: Readonly<Record<string, unknown>>;
  readonly servers: Readonly<Record<string, ServerEntry | RemoteEntry>>;
  readonly modes?: Tables;
  readonly models?: Tables;
  readonly agents?: Tables;
  readonly plugins?: readonly Readonly<Record<string, unknown>>[];
}

/** Tables by their names. */
type Tables = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

const SCRIPTED = fileURLToPath(new URL("../fixtures/servers/scripted.mjs", import.meta.url));
const PACKAGES = fileURLToPath(
  new URL("../../node_modules/@modelcontextprotocol/", import.meta.url),
);

/** A scripted server, run by the runtime of the tests; `options`: arguments of scripted.mjs, in one string. */
export function scripted(options = "", more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  return {
    command: process.execPath,
    args: [SCRIPTED, ...options.split(" ").filter(Boolean)],
    ...more,
  };
}

/** A published server (`@modelcontextprotocol/server-NAME`), run by the runtime of the tests, which starts faster than Node. */
export function publishedServer(
  name: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): ServerEntry {
  return {
    command: process.execPath,
    args: [`${PACKAGES}server-${name}/dist/index.js`, ...args],
    env,
  };
}

/** Adds environment variables to every stdio server; the server's own take precedence. */
export function withVariables(
  manifest: Manifest,
  variablesFor: (server: string) => Readonly<Record<string, string>>,
): Manifest {
  const servers = Object.entries(manifest.servers).map(([key, server]) =>
    isRemote(server)
      ? [key, server]
      : [key, { ...server, env: { ...variablesFor(key), ...server.env } }],
  ) as readonly (readonly [string, ServerEntry | RemoteEntry])[];
  return { ...manifest, servers: Object.fromEntries(servers) };
}

function isRemote(server: ServerEntry | RemoteEntry): server is RemoteEntry {
  return typeof (server["url"] ?? server["plugin"]) === "string";
}

/** The manifest as TOML. */
export function toToml(manifest: Manifest): string {
  const sections = [
    ["hub", manifest.hub],
    ["defaults", manifest.defaults],
    ...(["servers", "modes", "models", "agents"] as const).flatMap((table) =>
      Object.entries(manifest[table] ?? {}).map(
        ([key, entry]) => [`${table}.${JSON.stringify(key)}`, entry] as const,
      ),
    ),
    ...(manifest.plugins ?? []).map((plugin) => ["[plugins]", plugin] as const),
  ] as const;
  return sections
    .flatMap(([title, section]) =>
      section === undefined
        ? []
        : [
            `[${title}]`,
            ...Object.entries(section).map(
              ([key, value]) => `${JSON.stringify(key)} = ${inlineToml(value)}`,
            ),
            "",
          ],
    )
    .join("\n");
}

function inlineToml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(inlineToml).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const pairs = Object.entries(value).map(
    ([key, member]) => `${JSON.stringify(key)} = ${inlineToml(member)}`,
  );
  return `{ ${pairs.join(", ")} }`;
}
