import type { ResolvedRemote } from "../manifest/resolve.ts";
import type { RemoteServer } from "../manifest/manifest.ts";
import type {
  AuthChallenge,
  AuthorizationProgress,
  RequestCredentials,
} from "../transport/http/target.ts";

/**
 * The auth folder: OAuth 2.1 towards MCP servers (MCP authorization). Main types: `Authorizer`, below, which the hub
 * uses; `OAuthAuthorizer` (`oauth-authorizer.ts`), which implements it; `ServerCredentials` (`credentials.ts`), the
 * tokens of one server. Start with `oauth-authorizer.ts`, then `credentials.ts` and `login.ts`.
 *
 * Options of an authorization.
 */
export interface AuthorizationOptions {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: AuthorizationProgress) => void;
}

/** Provides the credentials for requests to servers, and obtains authorizations from the servers. */
export interface Authorizer {
  /** The credentials for the requests of a new connection. */
  credentialsFor(spec: RemoteServer, resolved: ResolvedRemote): RequestCredentials;
  /**
   * Obtains an authorization, if necessary with a login by the user; later requests to the server use it. Concurrent
   * calls for the same server share one run.
   * @throws {HubError} unauthorized, unreachable, or the signal's reason
   */
  authorize(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    control: AuthorizationOptions,
  ): Promise<void>;
  /**
   * Resolves when no token exchange is in progress. If the process exits during an exchange, it may lose the new
   * refresh token after the server has made the old one invalid. Never rejects.
   */
  settled(): Promise<void>;
}
