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
import type { Context, Hono } from "hono";
import * as v from "valibot";
import { errorDocument, HubError, isSystemError, toHubError } from "../base/errors.ts";
import type { Hub } from "../hub/hub.ts";
import { SECRET_NAME } from "../manifest/interpolate.ts";
import { SEARCH_LIMITS } from "../registry/search-limits.ts";
import { notFound, parseNumberParam, readBody } from "./requests.ts";
import {
  type ClientAppRequest,
  clientAppRequestSchema,
  secretValueSchema,
  trialRequestSchema,
} from "./schemas.ts";

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
  undoInstall(client: string): Promise<InstallationDocument>;
}

interface SetupHelpers {
  readonly nameOf: (c: Context) => string;
  readonly answer: (c: Context, document: object, status?: 200 | 202 | 409) => Response;
}

/**
 * Adds the endpoints for logins, secrets, new servers and MCP clients.
 * @param helpers `nameOf` reads the server's name in the path, and throws a 404 error if there is no such server;
 * `answer` makes the response with a document
 */
export function addSetupRoutes(
  api: Hono,
  hub: Hub,
  setup: HubSetup,
  { nameOf, answer }: SetupHelpers,
): void {
  /** Answers with the document of an operation, or with its error. */
  const respond = async (c: Context, operation: Promise<object>): Promise<Response> => {
    try {
      return answer(c, await operation);
    } catch (error) {
      if (!(error instanceof HubError || isSystemError(error))) throw error;
      return answer(c, errorDocument(toHubError(error)), 409);
    }
  };

  api.post("/servers/:name/login", async (c) => {
    const name = nameOf(c);
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
    if (c.req.query("wait") === "true") return await respond(c, done);
    done.catch(() => {});
    return answer(c, {}, 202);
  });
  api.post("/servers/:name/logout", async (c) => {
    const name = nameOf(c);
    const response = await respond(c, setup.logout(name, c.req.raw.signal));
    if (response.ok) hub.reconnect(name);
    return response;
  });

  api.get("/secrets", (c) => respond(c, setup.listSecrets()));
  api.put("/secrets/:name{.+}", async (c) => {
    const { value } = await readBody(c, secretValueSchema);
    await setup.setSecret(secretNameOf(c), value);
    return c.body(null, 204);
  });
  api.delete("/secrets/:name{.+}", async (c) => {
    const name = secretNameOf(c);
    if (!(await setup.removeSecret(name))) throw notFound(`secret "${name}"`);
    return c.body(null, 204);
  });

  api.get("/registry", (c) => {
    const words = (c.req.query("query") ?? "").split(/\s+/).filter((word) => word !== "");
    if (words.length === 0) throw new HubError("invalidParams", "query says what to search for.");
    const { preset, min, max } = SEARCH_LIMITS;
    const limit = parseNumberParam(c.req.query("limit") ?? String(preset), "limit");
    if (limit < min || limit > max)
      throw new HubError("invalidParams", `limit must be from ${min} to ${max}.`);
    return respond(c, setup.search(words, limit, c.req.raw.signal));
  });
  api.post("/trial", async (c) => {
    const { name, entry } = await readBody(c, trialRequestSchema);
    return answer(c, await setup.tryServer(name, entry, c.req.raw.signal));
  });

  api.get("/client-apps", async (c) => answer(c, { clients: await setup.clientApps() }));
  const knownClient = async (c: Context): Promise<string> => {
    const name = c.req.param("name") ?? "";
    const clients = await setup.clientApps();
    const names = clients.map((client) => client.name);
    if (names.includes(name)) return name;
    throw notFound(`client "${name}" whose files toolmux knows`, name, names);
  };
  api.get("/client-apps/:name/snippet", async (c) => {
    const name = await knownClient(c);
    const http = c.req.query("http");
    return respond(c, setup.makeSnippet(name, http));
  });
  api.post("/client-apps/:name/install", async (c) => {
    const name = await knownClient(c);
    const request = await readBody(c, clientAppRequestSchema);
    return respond(c, setup.install(name, request, c.req.raw.signal));
  });
  api.post("/client-apps/:name/undo", async (c) =>
    respond(c, setup.undoInstall(await knownClient(c))),
  );

  api.post("/check", (c) => respond(c, setup.check()));
}

function secretNameOf(c: Context): string {
  const name = c.req.param("name") ?? "";
  if (v.is(v.pipe(v.string(), v.regex(SECRET_NAME)), name)) return name;
  throw new HubError("invalidParams", "A secret's name has letters, digits, _ - . and / only.");
}
