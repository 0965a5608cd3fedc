import assert from "node:assert/strict";
import type { AuthChallenge } from "../../src/transport/http/target.ts";
import type { AuthorizationServerSettings } from "../fixtures/authorization-server.ts";
import {
  authorize,
  bearerTokenOf,
  CHALLENGE,
  NEVER_ABORTED,
  setUpAuthorization,
} from "../fixtures/authorization-setup.ts";
import {
  type ManifestSettings,
  type ProtectedServerOptions,
  protectedServerSpec,
  resolvedProtectedServer,
} from "../fixtures/protected-server.ts";

/** A server and its authorization server, and what hubs and people do there. */
export async function setUp(
  settings: AuthorizationServerSettings = {},
  options: ProtectedServerOptions = {},
) {
  const setup = await setUpAuthorization(settings, options);
  const { authorizationServer, server, openHub } = setup;
  const spec = protectedServerSpec(server);
  const target = resolvedProtectedServer(server);
  /** As another hub unless one is given. @returns the access token */
  const logIn = (hub = openHub(), more: ManifestSettings = {}, challenge = CHALLENGE) =>
    authorize(setup, hub, more, challenge);
  const tokenOf = (hub = openHub(), more: ManifestSettings = {}) =>
    bearerTokenOf(hub, server, more);
  const requestsTo = (path: string) => authorizationServer.requestsTo(path);
  return {
    ...setup,
    hub: openHub(),
    spec,
    target,
    logIn,
    requestsTo,
    assertLogsIn: async (...choice: Parameters<typeof logIn>) =>
      assert.equal(await server.statusFor(await logIn(...choice)), 200),
    /** The token that a hub has, or gets by itself, is good. */
    assertBears: async (...choice: Parameters<typeof tokenOf>) =>
      assert.equal(await server.statusFor(await tokenOf(...choice)), 200),
    tokenOf,
    authorizeUntil: (
      signal: AbortSignal,
      hub = openHub(),
      onStep: (step: string) => void = () => {},
    ) => hub.authorize(spec, target, CHALLENGE, { signal, onProgress: ({ step }) => onStep(step) }),
    renew: (hub = openHub(), more: ManifestSettings = {}, challenge = CHALLENGE) =>
      hub
        .credentialsFor(protectedServerSpec(server, more), resolvedProtectedServer(server, more))
        .renew(challenge, NEVER_ABORTED),
    /** How often a refresh token was used. */
    refreshes: () =>
      requestsTo("/token").filter(({ parameters }) => parameters.has("refresh_token")).length,
    /** The scopes that people were asked for. */
    askedScopes: () => requestsTo("/authorize").map(({ parameters }) => parameters.get("scope")),
    knowClient: (id: string, secret?: string) =>
      void authorizationServer.clients.set(id, {
        secret,
        redirects: undefined,
        expires: undefined,
      }),
  };
}

/** The challenge of a server that wants this scope. */
export function wanting(scope: string, status: 401 | 403 = 401): AuthChallenge {
  return { status, header: `Bearer error="insufficient_scope", scope="${scope}"` };
}
