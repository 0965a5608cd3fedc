/* The MCP SDK is loaded at the first authorization, because loading it takes longer than starting toolmux. */

export const loadSdk = () => import("@modelcontextprotocol/client");

type Sdk = Awaited<ReturnType<typeof loadSdk>>;

export type AuthorizationServerMetadata = NonNullable<
  Awaited<ReturnType<Sdk["discoverAuthorizationServerMetadata"]>>
>;

/** The response of a token endpoint. */
export type OAuthTokens = Awaited<ReturnType<Sdk["refreshAuthorization"]>>;

export type ClientInformation = Parameters<Sdk["refreshAuthorization"]>[1]["clientInformation"];

/** Adds the client authentication to a token request. */
export type ClientAuthentication = NonNullable<
  Parameters<Sdk["refreshAuthorization"]>[1]["addClientAuthentication"]
>;
