import * as v from "valibot";
import { filled, record, text } from "./fields.ts";

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
  clientId: v.exactOptional(filled),
  clientSecret: v.exactOptional(filled),
  privateKey: v.exactOptional(filled),
  keyAlgorithm: v.exactOptional(filled),
  clientMetadataUrl: v.exactOptional(filled),
  scopes: v.exactOptional(v.array(filled, "an array of scopes")),
  issuer: v.exactOptional(filled),
  callbackPort: v.exactOptional(
    v.pipe(v.number(PORT), v.integer(PORT), v.minValue(1, PORT), v.maxValue(65_535, PORT)),
  ),
});

const AUTH = ["auto", "none", "oauth"] as const;

/** The keys that determine how the server is reached. */
export const remoteEntries = {
  url: v.exactOptional(filled),
  transport: v.exactOptional(v.picklist(["auto", "http", "sse"], `"auto", "http" or "sse"`)),
  headers: v.exactOptional(record(text)),
  keyFile: v.exactOptional(filled),
  ca: v.exactOptional(filled),
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
export interface Remote {
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
