import type { CallLimitsInput } from "./call-limits.ts";
import type { SourceFile } from "./files/file-config.ts";
import type { Exposure } from "./exposures.ts";
import type { HttpToken, Manifest } from "./manifest.ts";
import { describeValue, type KeyPath, type Problem } from "./problems.ts";
import { type NamedClientInput, namedClientSchema } from "./schema.ts";
import { isTable } from "./table.ts";
import { validate } from "./validate.ts";

/**
 * An HTTP client that is identified by its own token (`[[clients]]`). If its table has a problem, its token is
 * refused.
 */
export type NamedClient =
  | {
      readonly kind: "client";
      readonly name: string;
      /** The client's token as written: its `${…}` are resolved when the manifest is read. */
      readonly token: HttpToken;
      /** The name of a mode that always limits what the client sees, in addition to other modes; undefined: none. */
      readonly mode: string | undefined;
      /** The names of the servers that the client sees; undefined: all. */
      readonly servers: readonly string[] | undefined;
      readonly approval: NamedClientInput["approval"];
      /** The form in which the client gets its tools; undefined: as the command line or the hub says. */
      readonly expose?: Exposure | undefined;
      /** Maximum number of sessions that the client may have at a time; undefined: no limit for this client. */
      readonly sessions: number | undefined;
      /** How many calls of the client are allowed; undefined: as `limits.client` of the manifest says. */
      readonly limits?: CallLimitsInput | undefined;
    }
  | {
      readonly kind: "invalid";
      /** The client's name; undefined if it has no valid one. */
      readonly name: string | undefined;
      readonly problems: readonly Problem[];
    };

/**
 * The tokens that HTTP clients can authenticate with, as written: `hub.httpToken` and the tokens of `[[clients]]`.
 */
export function httpTokensOf({
  httpToken,
  clients = [],
}: Pick<Manifest, "httpToken" | "clients">): readonly HttpToken[] {
  const own = clients.flatMap((client) => (client.kind === "client" ? [client.token] : []));
  return httpToken === undefined ? own : [httpToken, ...own];
}

/** A client as configured in one file; `input` is undefined if its table is invalid. */
export interface NamedClientConfig extends SourceFile {
  readonly path: KeyPath;
  readonly name: string | undefined;
  readonly input: NamedClientInput | undefined;
}

/** Reads the array `clients` of a file. */
export function readNamedClients(
  list: unknown,
  { file, baseDir }: SourceFile,
): { readonly clients: readonly NamedClientConfig[]; readonly problems: readonly Problem[] } {
  if (!Array.isArray(list)) {
    const advice = isTable(list) ? "; in TOML, write [[clients]] before each client" : "";
    const message = `expected an array of tables, found ${describeValue(list, false)}${advice}`;
    return { clients: [], problems: [{ file, path: ["clients"], at: "value", message }] };
  }
  const clients: NamedClientConfig[] = [];
  const problems: Problem[] = [];
  const names = new Set<unknown>();
  for (const [index, entry] of (list as readonly unknown[]).entries()) {
    const path = ["clients", index];
    const checked = validate(namedClientSchema(), entry, { file, path });
    if (!checked.ok) problems.push(...checked.problems);
    const { name } = isTable(entry) ? entry : {};
    const given = typeof name === "string" ? name : undefined;
    if (given !== undefined && names.has(given)) {
      const message = `another client is named ${JSON.stringify(given)}, too`;
      problems.push({ file, path: [...path, "name"], at: "value", message });
    }
    names.add(given);
    const input = checked.ok ? checked.value : undefined;
    clients.push({ file, baseDir, path, name: given, input });
  }
  return { clients, problems };
}

/**
 * The merged clients of all files. If two files have a client of the same name, the client of the later file counts.
 * @param problems the problems of the clients' tables, with positions
 */
export function makeNamedClients(
  configs: readonly (readonly NamedClientConfig[])[],
  problems: readonly Problem[],
): readonly NamedClient[] {
  const kept = configs.flatMap((own, i) =>
    own.filter(
      ({ name }) =>
        name === undefined ||
        !configs.slice(i + 1).some((later) => later.some((one) => one.name === name)),
    ),
  );
  return kept.map(({ file, baseDir, path, name, input }): NamedClient => {
    const own = problems.filter(
      (problem) => problem.file === file && path.every((key, i) => problem.path[i] === key),
    );
    if (input === undefined || own.length > 0) return { kind: "invalid", name, problems: own };
    const { mode, servers, approval, expose, sessions, limits, token: text } = input;
    const token = { text, file, baseDir };
    const seen = { mode, servers, approval, expose };
    return { kind: "client", name: input.name, token, ...seen, sessions, limits };
  });
}

/** The name of a user of the fleet as a client of this hub. @param user `tenant/user` */
export function principalOfUser(user: string): string {
  return `nats:${user}`;
}
