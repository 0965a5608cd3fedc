import { HubError } from "../base/errors.ts";

/** Sends a GET request; does not follow redirects. */
export type RegistryFetch = (
  url: URL,
  init: { readonly headers: Readonly<Record<string, string>>; readonly signal: AbortSignal },
) => Promise<Response>;

/** The maximum size of a response, in bytes. */
const MAX_RESPONSE = 4 * 1024 * 1024;

/** The address of a registry, and how requests to it are sent. */
export interface RegistryClient {
  readonly name: string;
  /** Without a trailing slash. */
  readonly baseUrl: string;
  readonly fetch: RegistryFetch;
  /** Added to every request. */
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
    await response.body?.cancel();
    throw statusError(name, url, status);
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

function statusError(name: string, url: URL, status: number): HubError {
  const subject = describeRegistry(name, url);
  if (status === 401 || status === 403) {
    return new HubError("unauthorized", `${subject} wants a key, or another one (${status}).`);
  }
  if (status === 429) return new HubError("serverFailed", `${subject} was asked too often (429).`);
  const code = status >= 500 ? "serverFailed" : "serverRefused";
  return new HubError(code, `${subject} has answered with ${status}.`);
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
