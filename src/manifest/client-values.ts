import { basename } from "node:path";
import type { Env } from "../base/paths.ts";
import { parseTemplate, templatePartsOf, templateTextsOf } from "./interpolate.ts";
import { type ExternalServer, isExternal, type Manifest, type ServerSpec } from "./manifest.ts";

/* The values in servers' entries that each client of a shared hub brings: its variables and its folder. */

/** The name of the client's folder among the names of the values. No variable has it: `${` cannot be in a name. */
const FOLDER = "${workspaceFolder}";

/**
 * What the process of a client gives to the servers that it uses. Only clients that share a hub on its attach socket
 * have one: for others the hub's own folder and environment count.
 */
export interface ClientOrigin {
  /** The working directory of the client's process: an absolute path. */
  readonly cwd: string;
  /** The variables that the manifest names (`${env:X}`, `inheritEnv`) and that the client's process has. */
  readonly env: Env;
  /** The folders of the client's PATH, absolute ones only, joined by ":"; undefined if it has none. */
  readonly path?: string | undefined;
}

/**
 * The names of the variables that the servers of a manifest take from a client, also servers that are disabled: those
 * in `${env:NAME}`, and those in `inheritEnv`; sorted, without duplicates. Names in `inheritEnv` are exact: there are no
 * patterns, and case counts. A client need not have all of the variables.
 */
export function variablesOf({ servers }: Pick<Manifest, "servers">): readonly string[] {
  const names = servers.flatMap((server) => valueNamesOf(server));
  return [...new Set(names)].filter((name) => name !== FOLDER).toSorted();
}

const valueNames = new WeakMap<ServerSpec, readonly string[]>();

/**
 * The names of the values that a server takes from a client: of variables, and `${workspaceFolder}`. Empty for a server
 * that is the same for all clients.
 */
export function valueNamesOf(server: ServerSpec): readonly string[] {
  const known = valueNames.get(server);
  if (known !== undefined) return known;
  const names = isExternal(server) ? findValueNames(server) : [];
  valueNames.set(server, names);
  return names;
}

function findValueNames(server: ExternalServer): readonly string[] {
  const inherited = inheritedNamesOf(server);
  const filledIn = templatePartsOf(server).flatMap((part) => {
    if (part.kind === "env") return [part.name];
    const isFolder = part.kind === "placeholder" && part.place.startsWith("workspaceFolder");
    return isFolder ? [FOLDER] : [];
  });
  return [...new Set([...inherited, ...filledIn])];
}

/** The variables that a server inherits, without those of which its `env` has another value. */
function inheritedNamesOf(server: ExternalServer): readonly string[] {
  if (server.kind !== "stdio") return [];
  return server.inheritEnv.filter((name) => !Object.hasOwn(server.env, name));
}

/**
 * The entry of a server, filled in with a client's values, as text: equal for clients whose entries are equal. Other
 * placeholders (secrets, files, commands) stand as they are written, because all clients get the same for them. The
 * text contains secrets.
 */
export function fillWithClientValues(server: ExternalServer, { cwd, env }: ClientOrigin): string {
  // No value has a NUL character, so it separates values from what is not filled in.
  const unfilled = (part: unknown): string => `\0${JSON.stringify(part)}\0`;
  const fill = (text: string): string =>
    parseTemplate(text, server.syntax)
      .map((part) => {
        if (part.kind === "text") return part.text;
        if (part.kind === "placeholder" && part.place === "workspaceFolder") return cwd;
        if (part.kind === "placeholder" && part.place === "workspaceFolderBasename")
          return basename(cwd);
        if (part.kind !== "env") return unfilled(part);
        const { name, fallback } = part;
        const value = env[name];
        if (fallback !== undefined && (value === undefined || value === "")) return fallback;
        return value ?? unfilled(null);
      })
      .join("");
  return JSON.stringify([
    templateTextsOf(server).map(fill),
    inheritedNamesOf(server).map((name) => env[name] ?? null),
  ]);
}

/** The names of the values of a server that differ between two clients; undefined: values that are not known. */
export function differingValues(
  server: ServerSpec,
  one: ClientOrigin | undefined,
  other: ClientOrigin | undefined,
): readonly string[] {
  const valueOf = (values: ClientOrigin | undefined, name: string): string | undefined =>
    name === FOLDER ? values?.cwd : values?.env[name];
  const names = valueNamesOf(server);
  if (one === undefined || other === undefined) return one === other ? [] : names;
  return names.filter((name) => valueOf(one, name) !== valueOf(other, name));
}
