import process from "node:process";
import { fileURLToPath } from "node:url";

/** What a scenario says beside the URL of its server. */
export type Context = Readonly<Record<string, unknown>>;

/** How the hub is started for one scenario. */
export interface Settings {
  /** Further keys of the server in the manifest. */
  readonly server: Readonly<Record<string, unknown>>;
  /** Further variables of the hub's environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** Where the referees' client is described, for those who read that. */
const DOCUMENT = "https://conformance-test.local/client-metadata.json";

const VISITOR = fileURLToPath(new URL("../fixtures/visitor.ts", import.meta.url));

/** What the hub has to be given for a scenario of that name. */
export function settingsFor(scenario: string, context: Context): Settings {
  if (!scenario.startsWith("auth/")) return { server: {}, env: {} };
  // Logins are agreed to at once, by whoever visits the page.
  const env = { BROWSER: `${process.execPath} ${VISITOR}` };
  const texts = Object.entries({
    clientId: context["client_id"],
    clientSecret: context["client_secret"],
    privateKey: context["private_key_pem"],
    keyAlgorithm: context["signing_algorithm"],
    issuer: context["issuer"],
    clientMetadataUrl: DOCUMENT,
  }).filter(([, value]) => typeof value === "string");
  const grant = scenario.startsWith("auth/client-credentials") && { grant: "clientCredentials" };
  return { server: { oauth: { ...Object.fromEntries(texts), ...grant } }, env };
}
