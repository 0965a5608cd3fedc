import process from "node:process";
import { fileURLToPath } from "node:url";

/** The context of a scenario (MCP_CONFORMANCE_CONTEXT). */
export type Context = Readonly<Record<string, unknown>>;

/** The hub's settings for one scenario. */
export interface Settings {
  /** Further keys of the server in the manifest. */
  readonly server: Readonly<Record<string, unknown>>;
  /** Further environment variables of the hub. */
  readonly env: Readonly<Record<string, string>>;
}

/** URL of the suites' client id metadata document. */
const CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json";

const BROWSER_COMMAND = fileURLToPath(new URL("../fixtures/browser-command.ts", import.meta.url));

/** The hub's settings for the scenario of this name. */
export function settingsFor(scenario: string, context: Context): Settings {
  if (!scenario.startsWith("auth/")) return { server: {}, env: {} };
  // The authorization servers grant at once, so the browser only follows redirects.
  const env = { BROWSER: `${process.execPath} ${BROWSER_COMMAND}` };
  const texts = Object.entries({
    clientId: context["client_id"],
    clientSecret: context["client_secret"],
    privateKey: context["private_key_pem"],
    keyAlgorithm: context["signing_algorithm"],
    issuer: context["issuer"],
    clientMetadataUrl: CLIENT_METADATA_URL,
  }).filter(([, value]) => typeof value === "string");
  const grant = scenario.startsWith("auth/client-credentials") && { grant: "clientCredentials" };
  return { server: { oauth: { ...Object.fromEntries(texts), ...grant } }, env };
}
