import type {
  CheckDocument,
  ClientAppDocument,
  InstallationDocument,
  LoginDocument,
  LogoutDocument,
  SnippetDocument,
  RegistryDocument,
  SecretsDocument,
  TrialDocument,
} from "../operations/documents.ts";
import { errorDocument, HubError, isSystemError, toHubError } from "../base/errors.ts";
import type { Hub } from "../hub/hub.ts";
import { SECRET_NAME } from "../manifest/interpolate.ts";
import { SEARCH_LIMITS } from "../registry/search-limits.ts";
import type { RoutesBelow } from "./endpoints.ts";
import { notFound } from "./requests.ts";
import { type Handlers, Reply } from "./routes.ts";
import type { ClientAppRequest } from "./schemas.ts";

/** The operations by which another program sets up a hub for a person: logins, secrets, new servers, MCP clients. */
export interface HubSetup {
  /**
   * Logs in to a server by OAuth. Ends when the person has logged in.
   * @param onNote receives what the person is told, such as the page on which to log in
   */
  login(server: string, onNote: (text: string) => void): Promise<LoginDocument>;
  logout(server: string, signal: AbortSignal): Promise<LogoutDocument>;
  /** Checks the manifest. */
  check(): Promise<CheckDocument>;
  /** Lists the secrets, without their values. */
  listSecrets(): Promise<SecretsDocument>;
  /** Stores a secret. @throws {HubError} usage if the name or the value is invalid */
  setSecret(name: string, value: string): Promise<void>;
  /** @returns whether there was such a secret */
  removeSecret(name: string): Promise<boolean>;
  /** Searches the registries of the manifest. @param words not empty */
  search(words: readonly string[], limit: number, signal: AbortSignal): Promise<RegistryDocument>;
  /** Starts a server once, lists its tools and stops it. @throws {HubError} manifestInvalid */
  tryServer(
    name: string,
    entry: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
  ): Promise<TrialDocument>;
  /** The MCP clients whose configuration files toolmux knows. */
  clientApps(): Promise<readonly ClientAppDocument[]>;
  /** Makes the entry of toolmux for a client. @param http the URL of a hub that the client connects to */
  makeSnippet(client: string, http: string | undefined): Promise<SnippetDocument>;
  /** Writes the entry of toolmux into the file of a client. */
  install(
    client: string,
    request: ClientAppRequest,
    signal: AbortSignal,
  ): Promise<InstallationDocument>;
  /** Removes the entry of toolmux from the file of a client. */
  undoInstall(client: string, dryRun: boolean): Promise<InstallationDocument>;
}

/** The endpoints for logins, secrets, new servers and MCP clients. */
export type SetupRoute =
  | "POST /servers/:name/login"
  | "POST /servers/:name/logout"
  | RoutesBelow<"/secrets" | "/registry" | "/trial" | "/client-apps" | "/check">;

/**
 * The endpoints for logins, secrets, new servers and MCP clients.
 * @param requireServer throws notFound if there is no such server
 */
export function setupHandlers(
  hub: Hub,
  setup: HubSetup,
  requireServer: (name: string) => void,
): Pick<Handlers, SetupRoute> {
  const clientOf = async (name: string): Promise<string> => {
    const clients = await setup.clientApps();
    const names = clients.map((client) => client.name);
    if (names.includes(name)) return name;
    throw notFound(`client "${name}" whose files toolmux knows`, name, names);
  };

  return {
    "POST /servers/:name/login": async ({ params: { name }, query: { wait } }) => {
      requireServer(name);
      const note = (text: string): void => hub.logServer(name, text);
      const login = async (): Promise<LoginDocument> => {
        try {
          const document = await setup.login(name, note);
          hub.reconnect(name);
          return document;
        } catch (error) {
          note(`The login failed: ${toHubError(error).message}`);
          throw error;
        }
      };
      // The login goes on even if the program that asked for it disconnects.
      const done = login();
      if (wait === true) return await outcomeOf(done);
      done.catch(() => {});
      return new Reply(202, undefined);
    },
    "POST /servers/:name/logout": async ({ params: { name }, signal }) => {
      requireServer(name);
      const outcome = await outcomeOf(setup.logout(name, signal));
      if (!(outcome instanceof Reply)) hub.reconnect(name);
      return outcome;
    },

    "GET /secrets": () => outcomeOf(setup.listSecrets()),
    "PUT /secrets/:name": ({ params: { name }, body: { value } }) =>
      setup.setSecret(secretName(name), value),
    "DELETE /secrets/:name": async ({ params: { name } }) => {
      if (!(await setup.removeSecret(secretName(name)))) throw notFound(`secret "${name}"`);
    },

    "GET /registry": ({ query: { query = "", limit = SEARCH_LIMITS.preset }, signal }) => {
      const words = query.split(/\s+/).filter((word) => word !== "");
      if (words.length === 0) throw new HubError("invalidParams", "query says what to search for.");
      const { min, max } = SEARCH_LIMITS;
      if (limit < min || limit > max)
        throw new HubError("invalidParams", `limit must be from ${min} to ${max}.`);
      return outcomeOf(setup.search(words, limit, signal));
    },
    "POST /trial": ({ body: { name, entry }, signal }) => setup.tryServer(name, entry, signal),

    "GET /client-apps": async () => ({ clients: await setup.clientApps() }),
    "GET /client-apps/:name/snippet": async ({ params: { name }, query: { http } }) =>
      outcomeOf(setup.makeSnippet(await clientOf(name), http)),
    "POST /client-apps/:name/install": async ({ params: { name }, body, signal }) =>
      outcomeOf(setup.install(await clientOf(name), body, signal)),
    "POST /client-apps/:name/undo": async ({ params: { name }, query: { dryRun = false } }) =>
      outcomeOf(setup.undoInstall(await clientOf(name), dryRun)),

    "POST /check": () => outcomeOf(setup.check()),
  };
}

/** The document of an operation, or its error with status 409. */
async function outcomeOf<Document>(
  operation: Promise<Document>,
): Promise<Document | Reply<409, object>> {
  try {
    return await operation;
  } catch (error) {
    if (!(error instanceof HubError || isSystemError(error))) throw error;
    return new Reply(409, errorDocument(toHubError(error)));
  }
}

/** @throws {HubError} invalidParams if this cannot be the name of a secret */
function secretName(name: string): string {
  if (SECRET_NAME.test(name)) return name;
  throw new HubError("invalidParams", "A secret's name has letters, digits, _ - . and / only.");
}
