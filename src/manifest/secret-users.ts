/** What uses a secret, by name, each in the order of the manifest. */
export interface SecretUsers {
  readonly servers: readonly string[];
  readonly models: readonly string[];
  /** The agents whose models use it. */
  readonly agents: readonly string[];
  /** The clients over HTTP whose tokens use it; `hub.httpToken` for the token of all. */
  readonly clients: readonly string[];
  /** The plugins whose options mention it. */
  readonly plugins: readonly string[];
}

/** Users as documents have them: all lists but `servers` and `models` are left out if they are empty. */
export type ListedUsers = Pick<SecretUsers, "servers" | "models"> & {
  readonly [Kind in keyof SecretUsers]?: SecretUsers[Kind] | undefined;
};

export function listedUsers({
  servers = [],
  models = [],
  agents = [],
  clients = [],
  plugins = [],
}: Partial<SecretUsers> = {}): Pick<SecretUsers, "servers" | "models"> & Partial<SecretUsers> {
  return {
    servers,
    models,
    ...(agents.length > 0 && { agents }),
    ...(clients.length > 0 && { clients }),
    ...(plugins.length > 0 && { plugins }),
  };
}

/** The users of a secret, for people. Servers are named alone, all others with what they are. */
export function describeSecretUsers({
  servers,
  models,
  agents = [],
  clients = [],
  plugins = [],
}: ListedUsers): readonly string[] {
  return [
    ...servers,
    ...models.map((name) => `model ${name}`),
    ...agents.map((name) => `agent ${name}`),
    ...clients.map((name) => `client ${name}`),
    ...plugins.map((name) => `plugin ${name}`),
  ];
}
