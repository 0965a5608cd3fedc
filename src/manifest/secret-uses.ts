import { secretsMentionedIn, secretsOf } from "./interpolate.ts";
import type { Manifest } from "./manifest.ts";
import { secretsOfModels } from "./resolve.ts";
import type { SecretSource } from "./schema.ts";
import type { SecretUsers } from "./secret-users.ts";

/** The uses of one secret. */
export interface SecretUses extends SecretUsers {
  /** Environment variables of the models. If one of them is set, the secret need not be stored. */
  readonly variables: readonly string[];
  /** The sources in which the first user looks the secret up, in this order; undefined: the default. */
  readonly sources: readonly SecretSource[] | undefined;
}

/** The uses of each secret that a manifest mentions, by the secret's name. */
export function secretUsesOf(manifest: Manifest): ReadonlyMap<string, SecretUses> {
  const { servers, agents = new Map<string, never>(), clients = [], httpToken, plugins } = manifest;
  const { telemetry } = manifest;
  const modelSecrets = secretsOfModels(manifest);
  const uses: Use[] = [
    ...servers.flatMap((spec) =>
      secretsOf(spec).map((secret) => {
        const sources = "secretSources" in spec ? spec.secretSources : undefined;
        return { secret, kind: "servers" as const, user: spec.name, sources };
      }),
    ),
    ...modelSecrets.map(({ name: secret, model: user, variables, sources }) => {
      return { secret, kind: "models" as const, user, variables, sources };
    }),
    ...[...agents.values()].flatMap((agent) =>
      modelSecrets.flatMap(({ name: secret, model }) =>
        "model" in agent && agent.model === model
          ? [{ secret, kind: "agents" as const, user: agent.name }]
          : [],
      ),
    ),
    ...clients.flatMap((client) =>
      client.kind === "client" ? mentions(client.token.text, "clients", client.name) : [],
    ),
    ...mentions(httpToken?.text, "clients", "hub.httpToken"),
    ...mentions([telemetry?.input.endpoint, telemetry?.input.headers], "clients", "telemetry"),
    ...plugins.flatMap(({ use, options }) => mentions(options, "plugins", use)),
  ];
  const bySecret = Map.groupBy(uses, ({ secret }) => secret);
  return new Map([...bySecret].map(([secret, own]) => [secret, gather(own)]));
}

/** One use of a secret. */
interface Use {
  readonly secret: string;
  readonly kind: keyof SecretUsers;
  readonly user: string;
  readonly variables?: readonly string[];
  readonly sources?: readonly SecretSource[] | undefined;
}

/** The uses of all secrets that a value mentions. */
function mentions(value: unknown, kind: keyof SecretUsers, user: string): readonly Use[] {
  return secretsMentionedIn(value).map((secret) => ({ secret, kind, user }));
}

function gather(uses: readonly Use[]): SecretUses {
  const of = (kind: keyof SecretUsers): readonly string[] => [
    ...new Set(uses.filter((use) => use.kind === kind).map(({ user }) => user)),
  ];
  return {
    servers: of("servers"),
    models: of("models"),
    agents: of("agents"),
    clients: of("clients"),
    plugins: of("plugins"),
    variables: uses.flatMap(({ variables = [] }) => variables),
    sources: uses.find(({ sources }) => sources !== undefined)?.sources,
  };
}
