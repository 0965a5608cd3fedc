import { Buffer } from "node:buffer";
import * as v from "valibot";
import { LOOPBACK, networkScopeOf, PUBLIC } from "../transport/http-client/network-scope.ts";
import { parseSchemes } from "../auth/challenge.ts";
import { HubError } from "../base/errors.ts";
import { saidInResponse } from "../base/quote.ts";
import { Redactor } from "../transport/redact.ts";
import type { Fetch } from "../transport/http-client/fetch.ts";
import { sha256Hex } from "../manifest/trust.ts";
import { MAX_AGENT_FILE } from "./agent-file.ts";
import { DIGEST, DOCKER_HUB, formatReference, type Reference } from "./reference.ts";

/** A user name with a password or token, for one registry. */
export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

export interface RegistryOptions {
  readonly fetch: Fetch;
  /** The credentials for a registry. @param host as in a `Reference` */
  credentialsFor(host: string): Promise<RegistryCredentials | undefined>;
  /** Time limit of a pull, in ms. */
  readonly timeout?: number | undefined;
}

/** An agent from a registry. Its digests have been verified. */
export interface PulledAgent {
  readonly reference: Reference;
  /** The digest of the manifest: `sha256:…`. */
  readonly digest: string;
  readonly manifest: Uint8Array<ArrayBuffer>;
  readonly contentDigest: string;
  /** The agent's file, as YAML. */
  readonly content: Uint8Array<ArrayBuffer>;
}

/** Time limit of a pull, in ms. */
const TIMEOUT = 30_000;
/** Maximum size of a manifest, and of the response with a token, in bytes. */
const MAX_DOCUMENT = 1024 * 1024;
const MAX_REDIRECTS = 5;
/** Maximum number of entries of an index whose manifests are fetched. */
const MAX_INDEX_ENTRIES = 16;

const INDEX_TYPES = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFEST_TYPES = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];
const AGENT_TYPES = [
  "application/vnd.docker.agent.config.v1+json",
  "application/vnd.docker.cagent.config.v1+json",
];
const AGENT_ANNOTATIONS = ["io.docker.agent.version", "io.docker.cagent.version"];
const LAYER_TYPE = "application/yaml";

const descriptorSchema = v.object({
  mediaType: v.exactOptional(v.string()),
  artifactType: v.exactOptional(v.string()),
  digest: v.pipe(v.string(), v.regex(DIGEST)),
  size: v.pipe(v.number(), v.integer(), v.minValue(0)),
});

const manifestSchema = v.object({
  artifactType: v.exactOptional(v.string()),
  config: v.exactOptional(v.object({ mediaType: v.exactOptional(v.string()) })),
  layers: v.exactOptional(v.array(descriptorSchema)),
  annotations: v.exactOptional(v.record(v.string(), v.string())),
});

const indexSchema = v.object({ manifests: v.array(descriptorSchema) });

const tokenSchema = v.object({
  token: v.exactOptional(v.string()),
  access_token: v.exactOptional(v.string()),
});

type Manifest = v.InferOutput<typeof manifestSchema>;

/** A manifest or an index, with the digest of its bytes. */
interface ManifestDocument {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly digest: string;
  readonly json: unknown;
}

/**
 * Pulls an agent with the API of OCI registries (distribution-spec 1.1). Nothing is written.
 * @throws {HubError} unreachable, tlsFailed, answerLost, unauthorized, agentNotFound, serverFailed, serverRefused,
 * digestMismatch, messageTooLarge, notSupported (no agent); the signal's reason
 */
export async function pullAgent(
  reference: Reference,
  options: RegistryOptions,
  signal: AbortSignal,
): Promise<PulledAgent> {
  const ms = options.timeout ?? TIMEOUT;
  const timeout = AbortSignal.timeout(ms);
  try {
    const client = new RegistryClient(reference, options, AbortSignal.any([signal, timeout]));
    return await client.pull();
  } catch (error) {
    signal.throwIfAborted();
    if (!timeout.aborted) throw error;
    const text = `The registry ${reference.host} did not send ${formatReference(reference)} within ${ms / 1000} s.`;
    throw new HubError("unreachable", text, { cause: error });
  }
}

/** The requests of one pull, which share one authorization. */
class RegistryClient {
  readonly #reference: Reference;
  readonly #options: RegistryOptions;
  readonly #signal: AbortSignal;
  readonly #base: URL;
  #authorization: string | undefined;

  constructor(reference: Reference, options: RegistryOptions, signal: AbortSignal) {
    this.#reference = reference;
    this.#options = options;
    this.#signal = signal;
    this.#base = apiUrl(reference.host);
  }

  async pull(): Promise<PulledAgent> {
    const { tag, digest } = this.#reference;
    const document = await this.#getManifest(digest ?? tag ?? "latest", digest);
    const { found, manifest } = await this.#selectAgent(document);
    const [layer] = manifest.layers ?? [];
    if (layer?.mediaType !== LAYER_TYPE) {
      throw this.#notAgent(
        "its first layer is not YAML; agents pushed by older versions are not supported",
      );
    }
    if (layer.size > MAX_AGENT_FILE) throw this.#tooLarge(MAX_AGENT_FILE);
    const content = await this.#get(`blobs/${layer.digest}`, "*/*", MAX_AGENT_FILE);
    await this.#checkDigest(content.bytes, layer.digest);
    return {
      reference: this.#reference,
      digest: found.digest,
      manifest: found.bytes,
      contentDigest: layer.digest,
      content: content.bytes,
    };
  }

  /**
   * The manifest of an agent: the document itself or, if the document is an index, the first manifest of an agent in
   * it.
   */
  async #selectAgent(
    document: ManifestDocument,
  ): Promise<{ readonly found: ManifestDocument; readonly manifest: Manifest }> {
    const index = v.safeParse(indexSchema, document.json);
    if (!index.success) {
      const manifest = this.#parseManifest(document);
      if (!isAgent(manifest)) throw this.#notAgent("it is another kind of artifact");
      return { found: document, manifest };
    }
    const entries = index.output.manifests
      .filter(({ mediaType }) => mediaType === undefined || MANIFEST_TYPES.includes(mediaType))
      .slice(0, MAX_INDEX_ENTRIES);
    // An entry may state the type of its manifest. If no entry states the type of an agent, the manifests have to be
    // fetched.
    const typed = entries.find(({ artifactType = "" }) => AGENT_TYPES.includes(artifactType));
    for (const { digest } of typed === undefined ? entries : [typed]) {
      const found = await this.#getManifest(digest, digest);
      const parsed = v.safeParse(manifestSchema, found.json);
      if (parsed.success && isAgent(parsed.output)) return { found, manifest: parsed.output };
    }
    throw this.#notAgent("none of its entries is an agent");
  }

  #parseManifest({ json }: ManifestDocument): Manifest {
    const parsed = v.safeParse(manifestSchema, json);
    if (parsed.success) return parsed.output;
    throw this.#unexpected("a manifest that does not follow the specification");
  }

  /** Gets a manifest or an index. @param expected the digest that the bytes must have, if it is known */
  async #getManifest(name: string, expected: string | undefined): Promise<ManifestDocument> {
    const accept = [...MANIFEST_TYPES, ...INDEX_TYPES].join(", ");
    const { bytes, headers } = await this.#get(`manifests/${name}`, accept, MAX_DOCUMENT);
    const declared = headers.get("docker-content-digest") ?? undefined;
    const digest = `sha256:${await sha256Hex(bytes)}`;
    if (expected !== undefined) await this.#checkDigest(bytes, expected);
    else if (declared !== undefined && DIGEST.test(declared))
      await this.#checkDigest(bytes, declared);
    try {
      const json: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      return { bytes, digest, json };
    } catch {
      throw this.#unexpected("a manifest that is not JSON");
    }
  }

  async #checkDigest(bytes: Uint8Array<ArrayBuffer>, expected: string): Promise<void> {
    const digest = `sha256:${await sha256Hex(bytes)}`;
    if (digest === expected) return;
    const text = `The data that registry ${this.#reference.host} sent for ${formatReference(this.#reference)} has the digest ${digest}, not ${expected}. Nothing was stored.`;
    throw new HubError("digestMismatch", text);
  }

  /**
   * Gets a document of the repository. If the registry requires authorization, gets it and repeats the request once.
   */
  async #get(
    path: string,
    accept: string,
    maxBytes: number,
  ): Promise<{ readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: Headers }> {
    const url = new URL(`/v2/${this.#reference.repository}/${path}`, this.#base);
    let response = await this.#follow(url, { accept }, this.#authorization);
    if (response.status === 401) {
      await response.body?.cancel();
      this.#authorization = await this.#authorize(response.headers.get("www-authenticate") ?? "");
      response = await this.#follow(url, { accept }, this.#authorization);
    }
    if (response.status !== 200) {
      throw this.#statusError(response.status, await quoteRefusal(response, this.#authorization));
    }
    return { bytes: await this.#readBody(response, maxBytes), headers: response.headers };
  }

  /**
   * Gets authorization for the requests of this pull.
   * @param header the value of the header WWW-Authenticate
   * @returns the value of the header Authorization
   * @throws {HubError} unauthorized if the registry offers no scheme that can be used, or refuses to issue a token
   */
  async #authorize(header: string): Promise<string> {
    const schemes = parseSchemes(header.slice(0, MAX_HEADER));
    const { host, repository } = this.#reference;
    const credentials = await this.#options.credentialsFor(host);
    const bearer = schemes.find(({ scheme }) => scheme === "bearer");
    if (bearer === undefined) {
      if (credentials === undefined || !schemes.some(({ scheme }) => scheme === "basic"))
        throw this.#statusError(401, "");
      return basicAuthorization(credentials);
    }
    const realm = bearer.parameters.get("realm") ?? "";
    if (!URL.canParse(realm)) throw this.#unexpected("a request for a token without a URL");
    const url = new URL(realm);
    const service = bearer.parameters.get("service");
    if (service !== undefined) url.searchParams.set("service", service);
    url.searchParams.set("scope", `repository:${repository}:pull`);
    this.#checkUrl(url);
    const isOwn =
      url.host === this.#base.host || (host === DOCKER_HUB && url.host === HUB_TOKEN_HOST);
    const authorization =
      credentials !== undefined && isOwn ? basicAuthorization(credentials) : undefined;
    const response = await this.#follow(url, { accept: "application/json" }, authorization);
    if (response.status !== 200) {
      throw this.#statusError(response.status, await quoteRefusal(response, authorization));
    }
    const bytes = await this.#readBody(response, MAX_DOCUMENT);
    const token = readToken(bytes);
    if (token === undefined) throw this.#unexpected("no token");
    return `Bearer ${token}`;
  }

  /**
   * Sends a request, and follows redirects. After a redirect to another host, no request has the authorization, even if
   * a further redirect leads back to the first host.
   */
  async #follow(
    start: URL,
    headers: Readonly<Record<string, string>>,
    authorization: string | undefined,
  ): Promise<Response> {
    let url = start;
    let isSameHost = true;
    for (let redirects = 0; ; redirects++) {
      const response = await this.#options.fetch(url, {
        headers: {
          ...headers,
          ...(authorization !== undefined && isSameHost && { authorization }),
        },
        signal: this.#signal,
      });
      const location = response.headers.get("location");
      if (!REDIRECTS.has(response.status) || location === null) return response;
      await response.body?.cancel();
      if (redirects === MAX_REDIRECTS) throw this.#unexpected("too many redirects");
      if (!URL.canParse(location, url)) throw this.#unexpected("a redirect to no URL");
      const next = new URL(location, url);
      this.#checkUrl(next);
      isSameHost &&= next.host === start.host && next.protocol === start.protocol;
      url = next;
    }
  }

  /**
   * Refuses URLs that a registry must not make this machine request: those without encryption, those with a user name
   * or password, and those with addresses of a narrower network than the registry's own. A host name that resolves to
   * such an address fails, because the server there has no certificate for the name.
   */
  #checkUrl(url: URL): void {
    const scope = networkScopeOf(url.hostname);
    const allowed = Math.max(networkScopeOf(this.#base.hostname), PUBLIC);
    const isEncrypted =
      url.protocol === "https:" || (url.protocol === "http:" && scope === LOOPBACK);
    const hasUser = url.username !== "" || url.password !== "";
    if (scope <= allowed && isEncrypted && !hasUser) return;
    const why = scope > allowed ? "an address that only this network has" : "not encrypted (https)";
    const text = `The registry ${this.#reference.host} points to ${url.origin}, which is ${hasUser ? "a URL with a password" : why}. It was not followed.`;
    throw new HubError("serverRefused", text);
  }

  async #readBody(response: Response, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const declared = Number(response.headers.get("content-length") ?? 0);
    if (declared > maxBytes) {
      await response.body?.cancel();
      throw this.#tooLarge(maxBytes);
    }
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of response.body ?? []) {
      size += chunk.length;
      if (size > maxBytes) throw this.#tooLarge(maxBytes);
      chunks.push(chunk);
    }
    const bytes = new Uint8Array(size);
    let at = 0;
    for (const chunk of chunks) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return bytes;
  }

  /** @param said what the registry said, as the end of a clause */
  #statusError(status: number, said: string): HubError {
    const { host } = this.#reference;
    const name = formatReference(this.#reference);
    if (status === 401 || status === 403) {
      const text = `The registry ${host} does not give ${name} to this user (${status})${said}. If it is not public: docker login ${host}, or set agentFiles.credentials in the manifest.`;
      return new HubError("unauthorized", text);
    }
    if (status === 404)
      return new HubError("agentNotFound", `The registry ${host} has no ${name}${said}.`);
    if (status === 429)
      return new HubError("serverFailed", `The registry ${host} was asked too often (429)${said}.`);
    const code = status >= 500 ? "serverFailed" : "serverRefused";
    return new HubError(code, `The registry ${host} answered ${status} for ${name}${said}.`);
  }

  #unexpected(what: string): HubError {
    const text = `The registry ${this.#reference.host} answered with ${what}.`;
    return new HubError("serverFailed", text);
  }

  #notAgent(reason: string): HubError {
    const text = `${formatReference(this.#reference)} is not an agent: ${reason}.`;
    return new HubError("notSupported", text);
  }

  #tooLarge(maxBytes: number): HubError {
    const text = `${formatReference(this.#reference)} is longer than ${maxBytes} bytes. Nothing was stored.`;
    return new HubError("messageTooLarge", text);
  }
}

const MAX_HEADER = 16 * 1024;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
/** The hosts of Docker Hub's API and of its tokens. */
const HUB_API_HOST = `registry-1.${DOCKER_HUB}`;
const HUB_TOKEN_HOST = `auth.${DOCKER_HUB}`;

/** The base URL of a registry's API. Only a registry on this machine is reached without encryption. */
function apiUrl(host: string): URL {
  if (host === DOCKER_HUB) return new URL(`https://${HUB_API_HOST}`);
  const url = new URL(`https://${host}`);
  return networkScopeOf(url.hostname) === LOOPBACK ? new URL(`http://${host}`) : url;
}

function isAgent({ artifactType = "", config, annotations = {} }: Manifest): boolean {
  return (
    AGENT_TYPES.includes(artifactType) ||
    AGENT_TYPES.includes(config?.mediaType ?? "") ||
    AGENT_ANNOTATIONS.some((name) => Object.hasOwn(annotations, name))
  );
}

function basicAuthorization({ username, password }: RegistryCredentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

/** Quotes why a registry refuses a request, without the request's credentials. */
function quoteRefusal(response: Response, authorization: string | undefined): Promise<string> {
  const credentials = (authorization ?? "").replace(/^\S+ +/, "");
  const password = Buffer.from(credentials, "base64")
    .toString()
    .replace(/^[^:]*:/, "");
  const secrets = [credentials, password].filter((secret) => secret !== "");
  return saidInResponse(response, new Redactor(secrets));
}

/** Reads the token of a response; undefined if there is none, or if it cannot be put into a header. */
function readToken(bytes: Uint8Array): string | undefined {
  try {
    const parsed = v.safeParse(tokenSchema, JSON.parse(new TextDecoder().decode(bytes)));
    const token = parsed.success ? (parsed.output.token ?? parsed.output.access_token) : undefined;
    return token !== undefined && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
  } catch {
    return undefined;
  }
}
