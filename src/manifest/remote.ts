import * as v from "valibot";
import { nonEmptyText, record, text } from "./fields.ts";

/* The manifest's keys of a server that is reached over HTTP. */

const PORT = "the number of a port, 1 to 65535";

/** OAuth settings. The texts may hold `${…}`. */
const oauthSchema = v.strictObject({
  grant: v.exactOptional(
    v.picklist(
      ["authorizationCode", "clientCredentials"],
      `"authorizationCode" or "clientCredentials"`,
    ),
  ),
  clientId: v.exactOptional(nonEmptyText),
  clientSecret: v.exactOptional(nonEmptyText),
  privateKey: v.exactOptional(nonEmptyText),
  keyAlgorithm: v.exactOptional(nonEmptyText),
  clientMetadataUrl: v.exactOptional(nonEmptyText),
  scopes: v.exactOptional(v.array(nonEmptyText, "an array of scopes")),
  issuer: v.exactOptional(nonEmptyText),
  callbackPort: v.exactOptional(
    v.pipe(v.number(PORT), v.integer(PORT), v.minValue(1, PORT), v.maxValue(65_535, PORT)),
  ),
});

const AUTH = ["auto", "none", "oauth"] as const;

/** The keys that determine how the server is reached. */
export const remoteEntries = {
  url: v.exactOptional(nonEmptyText),
  transport: v.exactOptional(v.picklist(["auto", "http", "sse"], `"auto", "http" or "sse"`)),
  headers: v.exactOptional(record(text)),
  keyFile: v.exactOptional(nonEmptyText),
  ca: v.exactOptional(nonEmptyText),
  auth: v.exactOptional(v.picklist(AUTH, `"auto", "none" or "oauth"`)),
  oauth: v.exactOptional(oauthSchema),
};

export const REMOTE_KEYS = Object.keys(remoteEntries) as readonly (keyof typeof remoteEntries)[];

/**
 * OAuth settings of a server. `grant`: a person logs in with a browser (`authorizationCode`), or the hub authenticates
 * itself (`clientCredentials`, with a secret or a private key in PEM). `scopes` undefined: those that the server asks
 * for. `issuer`: the only authorization server that may receive the client's secret. `callbackPort` undefined: any free
 * port. The texts may hold `${…}`.
 */
export type OAuthSettings = Readonly<v.InferOutput<typeof oauthSchema>>;

/** How an HTTP server is reached. All texts are as written; `resolveRemote` resolves their `${…}` at each connect. */
export interface RemoteSettings {
  readonly url: string;
  /** `auto`: Streamable HTTP, falling back to the older HTTP+SSE transport (2024-11-05). */
  readonly transport: "auto" | "http" | "sse";
  /** Has no prototype. */
  readonly headers: Readonly<Record<string, string>>;
  /** A file with a bearer token, read at each connect; relative to the manifest's folder. */
  readonly keyFile: string | undefined;
  /** A file with PEM certificates that are trusted beside the system's; relative to the manifest's folder. */
  readonly ca: string | undefined;
  /** `auto`: OAuth if the server requires it and no other credentials are set; `oauth`: from the first request. */
  readonly auth: (typeof AUTH)[number];
  readonly oauth: OAuthSettings;
}
