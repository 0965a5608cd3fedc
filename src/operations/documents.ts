import * as v from "valibot";
import { CHECKS } from "../scan/checks.ts";

/**
 * The documents of operations: what commands print with `--json`, and what the control API sends. Times are in ms since
 * the epoch.
 */

const names = v.pipe(v.array(v.string()), v.readonly());
const count = v.number();

/**
 * What uses a secret. Agents: those whose models use it; clients: those over HTTP whose tokens use it; plugins: those
 * whose options mention it. Lists other than `servers` and `models` are absent if they are empty.
 */
const secretUsers = {
  servers: names,
  models: names,
  agents: v.optional(names),
  clients: v.optional(names),
  plugins: v.optional(names),
};

/** An error, as documents have it. */
export const failureSchema = v.object({ code: v.string(), message: v.string() });

/**
 * A check of the manifest. With problems, all other lists are empty, except `servers`, which may have the servers
 * without a problem.
 */
export const checkSchema = v.object({
  /** Whether there are no problems. */
  ok: v.boolean(),
  /** `file` may also be the name of an environment variable. Line and column start at 1; both are null if unknown. */
  problems: v.array(
    v.object({
      file: v.string(),
      line: v.nullable(count),
      column: v.nullable(count),
      path: v.string(),
      message: v.string(),
    }),
  ),
  notes: names,
  files: names,
  /** `text`: the command or URL, or why the server cannot start. Contains no secret. */
  servers: v.array(
    v.object({
      name: v.string(),
      state: v.picklist(["starts", "disabled", "unsupported", "incomplete", "fails"]),
      text: v.string(),
      starts: v.boolean(),
    }),
  ),
  /** The secrets that the manifest mentions. `place`: where the secret was found; null: nowhere. */
  secrets: v.array(
    v.object({
      name: v.string(),
      ...secretUsers,
      place: v.nullable(v.string()),
    }),
  ),
  /** `path`: the absolute path of external code. */
  plugins: v.array(
    v.object({
      use: v.string(),
      path: v.nullable(v.string()),
      kind: v.picklist(["builtIn", "file", "package"]),
    }),
  ),
  modes: v.array(
    v.object({
      name: v.string(),
      title: v.string(),
      icon: v.optional(v.string()),
      ok: v.boolean(),
    }),
  ),
  /** The clients that have their own tokens. */
  clients: v.array(
    v.object({
      name: v.nullable(v.string()),
      ok: v.boolean(),
      mode: v.optional(v.string()),
      servers: v.optional(names),
    }),
  ),
});

export type CheckDocument = v.InferOutput<typeof checkSchema>;

/** The outcome of starting a server once. */
/** A suspicious text in a definition of a server. The texts are the server's: for people only. */
export const entryFindingSchema = v.object({
  kind: v.picklist(["tool", "prompt", "instructions"]),
  /** The name at the server. */
  name: v.string(),
  check: v.picklist(CHECKS),
  hard: v.boolean(),
  /** The text, by its path in the definition: `inputSchema.properties.path.description`. */
  where: v.string(),
  /** The place, at most 160 long: invisible characters escaped, secrets masked. */
  excerpt: v.string(),
});

export const trialSchema = v.variant("state", [
  v.object({
    state: v.literal("connected"),
    name: v.optional(v.string()),
    version: v.optional(v.string()),
    tools: count,
    /** What the scan has found in its definitions, hard ones first. */
    findings: v.pipe(v.array(entryFindingSchema), v.readonly()),
  }),
  v.object({ state: v.literal("unauthorized") }),
  v.object({
    state: v.literal("failed"),
    error: failureSchema,
    remedies: names,
  }),
]);

/**
 * An MCP client whose configuration files toolmux knows. `file`: the file that lists its servers; `installed`:
 * whether toolmux is one of them.
 */
export const clientAppSchema = v.object({
  name: v.string(),
  title: v.string(),
  file: v.optional(v.string()),
  exists: v.boolean(),
  installed: v.boolean(),
  /** Number of the client's servers, without toolmux. */
  servers: count,
  /** Why the file cannot be read. */
  problem: v.optional(v.string()),
});

/** The names of secrets, where each is found, and what uses it. */
export const secretsSchema = v.object({
  secrets: v.array(
    v.object({
      name: v.string(),
      places: names,
      ...secretUsers,
    }),
  ),
  /** The folder of the secret store. */
  folder: v.string(),
  /** Where the key of the store is: in the keychain, or beside the store. */
  key: v.picklist(["keychain", "beside", "none"]),
});

/** A way to use a server of a registry: a package, or a URL. */
const offerSchema = v.union([
  v.object({ package: v.string(), env: names }),
  v.object({ url: v.string(), transport: v.picklist(["http", "sse"]), headers: names }),
]);

/** The entries of the registries that match a query, and the registries that did not answer. */
export const registrySchema = v.object({
  servers: v.array(
    v.object({
      directory: v.string(),
      name: v.string(),
      title: v.optional(v.string()),
      description: v.optional(v.string()),
      version: v.optional(v.string()),
      repository: v.optional(v.string()),
      homepage: v.optional(v.string()),
      /** Why the other ways to use the server that the registry lists are not offered. */
      omissions: names,
      offers: v.array(offerSchema),
    }),
  ),
  failures: v.array(v.object({ directory: v.string(), ...failureSchema.entries })),
});

/** The text that a person copies into the configuration file of a client. `next`: what the person does after that. */
export const snippetSchema = v.object({
  client: v.string(),
  file: v.string(),
  format: v.picklist(["json", "toml"]),
  text: v.string(),
  next: v.string(),
});

/**
 * A change of the configuration file of a client. `backup`: the copy of the original file; `change`: what is different
 * in the file from `line` on: entries that are removed, by name, and lines that are added; `imported`: the servers that
 * move into the manifest.
 */
export const installationSchema = v.object({
  client: v.string(),
  file: v.string(),
  action: v.picklist(["install", "restore", "remove", "edit", "none"]),
  backup: v.optional(v.string()),
  written: v.boolean(),
  doubled: v.optional(names),
  change: v.optional(v.object({ line: v.optional(count), removed: names, added: names })),
  imported: v.optional(names),
});

/** `revoked`: whether the authorization server has revoked the tokens. `reason`: why it has refused to. */
export const logoutSchema = v.object({
  server: v.string(),
  loggedOut: v.boolean(),
  revoked: v.boolean(),
  reason: v.optional(v.string()),
});

/** The state of the login. `by`: where fixed credentials are; `expires`: an ISO time. */
export const loginSchema = v.object({
  server: v.string(),
  state: v.picklist(["none", "fixed", "authorized", "expired"]),
  by: v.optional(v.picklist(["header", "keyFile"])),
  issuer: v.optional(v.string()),
  expires: v.optional(v.string()),
  refreshable: v.optional(v.boolean()),
  scopes: v.optional(names),
});

/**
 * What one hub that the clients of a manifest share would save. `enabled`: whether the manifest says so (`hub.shared`);
 * `now`: the private hubs that run, the processes of their servers, and the memory of these in bytes; `shared`: the
 * processes and the memory of the same servers in a shared hub, estimated.
 */
export const sharingSchema = v.object({
  enabled: v.boolean(),
  now: v.object({ hubs: count, processes: count, memory: count }),
  shared: v.object({ processes: count, memory: count }),
  /** The servers of which each client would still have its own process. */
  perClient: names,
  /** The servers that take values from their clients: a shared hub runs one process for each set of values. */
  perValue: v.pipe(v.array(v.object({ server: v.string(), names })), v.readonly()),
  /** The process ids of the private hubs, and of the shared hubs, that run. */
  privateHubs: v.pipe(v.array(count), v.readonly()),
  sharedHubs: v.pipe(v.array(count), v.readonly()),
});

/** `hub.shared` as it was set in the manifest `file`. `changed`: whether it was not so before. */
export const sharingSettingSchema = v.object({
  file: v.string(),
  shared: v.boolean(),
  changed: v.boolean(),
});

/**
 * The service that was installed, or removed: `file` is its unit, `name` what the service manager calls it. `changed`:
 * whether the unit was written or removed. `hint`: what the person may want to do next.
 */
export const serviceSchema = v.object({
  manager: v.picklist(["systemd", "launchd"]),
  file: v.string(),
  name: v.string(),
  changed: v.boolean(),
  command: v.optional(names),
  http: v.optional(v.string()),
  hint: v.optional(v.string()),
});

/**
 * A service. `unit`: whether its file exists and was written by toolmux; `state`: as the service manager calls it, such
 * as `active`; `enabled`: whether it starts at login; `pid`: its process; `fault`: why its command cannot start this
 * version of toolmux.
 */
export const serviceStatusSchema = v.object({
  manager: v.picklist(["systemd", "launchd"]),
  file: v.string(),
  name: v.string(),
  unit: v.picklist(["absent", "foreign", "installed"]),
  state: v.string(),
  enabled: v.optional(v.boolean()),
  pid: v.optional(count),
  command: v.optional(names),
  fault: v.optional(v.string()),
});

export type ServiceDocument = v.InferOutput<typeof serviceSchema>;
export type ServiceStatusDocument = v.InferOutput<typeof serviceStatusSchema>;
export type SharingDocument = v.InferOutput<typeof sharingSchema>;
export type SharingSettingDocument = v.InferOutput<typeof sharingSettingSchema>;
export type TrialDocument = v.InferOutput<typeof trialSchema>;
export type ClientAppDocument = v.InferOutput<typeof clientAppSchema>;
export type SecretsDocument = v.InferOutput<typeof secretsSchema>;
export type RegistryDocument = v.InferOutput<typeof registrySchema>;
export type SnippetDocument = v.InferOutput<typeof snippetSchema>;
export type InstallationDocument = v.InferOutput<typeof installationSchema>;
export type LogoutDocument = v.InferOutput<typeof logoutSchema>;
export type LoginDocument = v.InferOutput<typeof loginSchema>;

/** A document before it is serialized: JSON will leave out the members that are undefined. */
export type WithUndefined<T> = { [Key in keyof T]: T[Key] | undefined };

/** The document without the members that are undefined. */
export function withoutUndefined<Document extends object>(
  members: WithUndefined<Document>,
): Document {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  ) as Document;
}
