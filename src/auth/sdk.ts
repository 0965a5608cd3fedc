/* Loading the SDK takes longer than starting toolmux: it is there when somebody first wants an authorization. */

export const loadSdk = () => import("@modelcontextprotocol/client");

type Sdk = Awaited<ReturnType<typeof loadSdk>>;

/** What an authorization server says of itself. */
export type AuthorizationServerMetadata = NonNullable<
  Awaited<ReturnType<Sdk["discoverAuthorizationServerMetadata"]>>
>;

/** What it gives. */
export type OAuthTokens = Awaited<ReturnType<Sdk["refreshAuthorization"]>>;

/** A client, as it knows it. */
export type ClientInformation = Parameters<Sdk["refreshAuthorization"]>[1]["clientInformation"];

/** How a client proves to it who it is, where that is neither a secret nor nothing. */
export type ClientProof = NonNullable<
  Parameters<Sdk["refreshAuthorization"]>[1]["addClientAuthentication"]
>;
