/**
 * registry/: registries of MCP servers: searching them, and converting their entries to manifest entries. Main types:
 * `Registry`, the interface of a registry, which `official.ts` and `smithery.ts` implement; `RegistryEntry`, a listed
 * server. Start here, then read `search.ts` (all registries at once) and `manifest-entry.ts`.
 */
import { HubError } from "../base/errors.ts";
import { saidInResponse } from "../base/quote.ts";
import { Redactor } from "../transport/redact.ts";

/*
 * Data from registries is untrusted: it is sanitized before it is shown, and no command from a registry is run before
 * the user has seen it.
 */

/** A value that the user of a server must or may supply. */
export interface RegistryInput {
  /** The name of a variable, a header or an argument's option; empty if the argument is positional. */
  readonly name: string;
  readonly description: string | undefined;
  readonly isRequired: boolean;
  readonly isSecret: boolean;
  /** A fixed value. Parts in braces are names of entries of `variables`. */
  readonly value: string | undefined;
  readonly fallback: string | undefined;
  readonly variables: ReadonlyMap<string, RegistryInput>;
}

/** A package that contains the server. */
export interface PackageOption {
  readonly kind: "package";
  /** The package, as written in a manifest. */
  readonly name: string;
  readonly args: readonly RegistryInput[];
  readonly env: readonly RegistryInput[];
}

export interface RemoteOption {
  readonly kind: "remote";
  readonly url: string;
  readonly transport: "http" | "sse";
  readonly headers: readonly RegistryInput[];
  /** The variables that occur in braces in the URL. */
  readonly variables: ReadonlyMap<string, RegistryInput>;
}

export type ServerOption = PackageOption | RemoteOption;

/** A server that a registry lists. */
export interface RegistryEntry {
  /** The registry's name. */
  readonly directory: string;
  /** The server's name in the registry. */
  readonly name: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
  readonly version: string | undefined;
  /** The URL of the source repository. */
  readonly repository: string | undefined;
  readonly homepage: string | undefined;
  /** The ways to run or reach the server that toolmux supports. */
  readonly options: readonly ServerOption[];
  /** The reasons why other listed ways to run or reach the server are not supported: whole sentences. */
  readonly omissions: readonly string[];
}

/** A registry of MCP servers. */
export interface Registry {
  readonly name: string;
  /**
   * Searches the registry; best matches first.
   * @param words not empty
   * @param limit the maximum number of results
   * @throws {HubError} unreachable, tlsFailed, serverFailed, serverRefused, unauthorized, messageTooLarge, or the
   * signal's reason
   */
  search(
    words: readonly string[],
    limit: number,
    signal: AbortSignal,
  ): Promise<readonly RegistryEntry[]>;
  /**
   * Finds the entry with the given name, with all details; undefined if there is none. @throws {HubError} the errors
   * of `search`
   */
  find(name: string, signal: AbortSignal): Promise<RegistryEntry | undefined>;
}

/** Sends a GET request; does not follow redirects. */
export type RegistryFetch = (
  url: URL,
  init: { readonly headers: Readonly<Record<string, string>>; readonly signal: AbortSignal },
) => Promise<Response>;

/** The maximum size of a response, in bytes. */
const MAX_RESPONSE = 4 * 1024 * 1024;

/** The address of a registry, and the function and headers for requests to it. */
export interface RegistryClient {
  readonly name: string;
  /** Without a trailing slash. */
  readonly baseUrl: string;
  readonly fetch: RegistryFetch;
  /** HTTP headers that are added to every request. */
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Fetches JSON from a registry.
 * @returns undefined for 404
 * @throws {HubError} unreachable, tlsFailed, unauthorized, serverFailed, serverRefused, messageTooLarge, or the
 * signal's reason
 */
export async function fetchJson(
  { name, baseUrl, fetch, headers }: RegistryClient,
  path: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<unknown> {
  const url = new URL(baseUrl + path);
  for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
  const response = await fetch(url, {
    headers: { accept: "application/json", ...headers },
    signal,
  });
  const { status } = response;
  if (status === 404) {
    await response.body?.cancel();
    return undefined;
  }
  if (status !== 200) {
    const said = await saidInResponse(response, new Redactor(secretsIn(headers)));
    throw statusError(name, url, status, said);
  }
  const text = await readText(response, name);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new HubError(
      "serverFailed",
      `${describeRegistry(name, url)} has not answered with JSON.`,
    );
  }
}

/** The error for a response that does not follow the registry's API. */
export function unexpectedAnswer({ name, baseUrl }: RegistryClient): HubError {
  const subject = describeRegistry(name, new URL(baseUrl));
  const text = `${subject} has not answered as a directory of servers does: is its URL right?`;
  return new HubError("serverFailed", text);
}

function describeRegistry(name: string, { host }: URL): string {
  return name === host ? name : `${name} (${host})`;
}

/** The values of headers, with and without their scheme (such as `Bearer`). */
function secretsIn(headers: RegistryClient["headers"]): readonly string[] {
  return Object.values(headers).flatMap((value) => [value, value.replace(/^\S+ +/, "")]);
}

/** @param said what the registry said, as the end of a clause */
function statusError(name: string, url: URL, status: number, said: string): HubError {
  const subject = describeRegistry(name, url);
  if (status === 401 || status === 403) {
    return new HubError(
      "unauthorized",
      `${subject} needs a key, or refuses the given one (${status})${said}.`,
    );
  }
  if (status === 429)
    return new HubError("serverFailed", `${subject} was asked too often (429)${said}.`);
  const code = status >= 500 ? "serverFailed" : "serverRefused";
  return new HubError(code, `${subject} has answered with ${status}${said}.`);
}

async function readText({ body }: Response, name: string): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_RESPONSE) {
      throw new HubError(
        "messageTooLarge",
        `The answer of ${name} is longer than ${MAX_RESPONSE} bytes.`,
      );
    }
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
