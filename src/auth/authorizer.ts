import type { ResolvedRemote } from "../manifest/resolve.ts";
import type { RemoteServer } from "../manifest/schema.ts";
import type {
  AuthChallenge,
  AuthorizationProgress,
  RequestCredentials,
} from "../transport/http/target.ts";

/** How an authorization is gone through. */
export interface AuthorizationOptions {
  /** Gives it up. */
  readonly signal: AbortSignal;
  /** How far it has come. */
  readonly onProgress: (progress: AuthorizationProgress) => void;
}

/** Gets the hub into servers that want an authorization, and keeps it in. */
export interface Authorizer {
  /** What the requests over a new link to a server bear. */
  credentialsFor(spec: RemoteServer, resolved: ResolvedRemote): RequestCredentials;
  /**
   * Gets an authorization, of a person if need be: from then on the server's credentials have it. Servers that are reached
   * with the same one are authorized once.
   * @throws {HubError} unauthorized, or the signal's reason
   */
  authorize(
    spec: RemoteServer,
    resolved: ResolvedRemote,
    challenge: AuthChallenge,
    proceeding: AuthorizationOptions,
  ): Promise<void>;
  /** When no token is being exchanged any more: a process that ends before may lose one for good. Never rejects. */
  settled(): Promise<void>;
}
