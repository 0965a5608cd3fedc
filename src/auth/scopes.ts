import type { BearerChallenge } from "./challenge.ts";
import type { AuthorizationServer } from "./discovery.ts";
import type { StoredToken } from "./stored-token.ts";

export interface ScopeChoice {
  /** Those that the manifest says, or a person; undefined: whatever the server wants. */
  readonly wanted: readonly string[] | undefined;
  /** What there is does not go far enough. */
  readonly isTooLittle: boolean;
  readonly demand: BearerChallenge;
  readonly authority: AuthorizationServer;
  /** What there was before. */
  readonly before: StoredToken | undefined;
  readonly grant: StoredToken["grant"];
}

/**
 * The scopes to ask for: those that are wanted, and else what the server has just said that it wants, or else all that it has;
 * and what was asked for before, as a token that can do more must not be one that can do less. None: what the authorization server thinks right.
 */
export function chooseScopes(choice: ScopeChoice): readonly string[] {
  const { wanted, isTooLittle, demand, authority, before, grant } = choice;
  const said = demand.scopes.length > 0 ? demand.scopes : authority.scopes;
  const asked = before?.issuer === authority.issuer ? before.asked : [];
  const more = isTooLittle ? demand.scopes : [];
  const base = wanted === undefined ? said : [...wanted, ...more];
  const scopes = new Set([...asked, ...base]);
  const offered = authority.metadata?.scopes_supported;
  // Some give a refresh token only to those who ask for this. Others refuse what they do not have.
  if (grant === "authorizationCode" && scopes.size > 0 && offered?.includes(OFFLINE) === true) {
    scopes.add(OFFLINE);
  }
  return [...scopes];
}
const OFFLINE = "offline_access";

/** Whether one may hope that asking for those scopes leads to more than there is. */
export function isStepUp({ scopes }: BearerChallenge, before: StoredToken | undefined): boolean {
  return scopes.some((scope) => before?.asked.includes(scope) !== true);
}

/** Whether what there is goes as far as that. */
export function coversScopes({ scopes: given }: StoredToken, { scopes }: BearerChallenge): boolean {
  return scopes.every((scope) => given.includes(scope));
}
