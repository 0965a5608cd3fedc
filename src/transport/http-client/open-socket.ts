import { formatDuration } from "../../base/format.ts";
import { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { connect, isIP, type Socket } from "node:net";
import * as tls from "node:tls";
import { connect as secure, type TLSSocket } from "node:tls";
import { HubError } from "../../base/errors.ts";
import { runtimeName } from "../../base/runtime.ts";
import { networkScopeOf, resolveScopes } from "./network-scope.ts";
import type { OpenedSocket } from "./pool.ts";
import { hostWithoutBrackets, portOf, proxyFor } from "./proxy.ts";
import { parseResponseHead } from "./response-parser.ts";
import { basicAuthorization } from "./url-credentials.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Environment variables with the path of a PEM file of additional certificates. */
const CERTIFICATE_VARIABLES = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] as const;

/**
 * Loads the trusted CA certificates: those of the system or runtime, those of `ca`, and those in the files that
 * `NODE_EXTRA_CA_CERTS` and `SSL_CERT_FILE` name.
 * @returns undefined if nothing is added to the runtime's own certificates
 * @throws {HubError} tlsFailed if a file cannot be read
 */
export async function loadTrustedCertificates(
  ca: string | undefined,
  env: Env,
): Promise<readonly string[] | undefined> {
  const additional = ca === undefined ? [] : [ca];
  for (const name of CERTIFICATE_VARIABLES) {
    const path = env[name];
    if (path !== undefined && path !== "") additional.push(await readPem(name, path));
  }
  return additional.length === 0 ? undefined : [...defaultCertificates(), ...additional];
}

async function readPem(name: string, path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const text = `The certificates that ${name} names (${path}) cannot be read: ${describeReadError(error)}.`;
    throw new HubError("tlsFailed", text, { step: "dial" });
  }
}

function describeReadError(error: unknown): string {
  return (error as { code?: unknown }).code === "ENOENT" ? "there is no such file" : String(error);
}

/** The default certificates. The TLS option `ca` replaces them, so they are passed together with additional ones. */
function defaultCertificates(): readonly string[] {
  const tlsModule: { getCACertificates?(kind: "default" | "system"): readonly string[] } = tls;
  if (tlsModule.getCACertificates === undefined) return tls.rootCertificates;
  return [
    ...new Set([
      ...tlsModule.getCACertificates("default"),
      ...tlsModule.getCACertificates("system"),
    ]),
  ];
}

export interface ConnectOptions {
  /** The path of a Unix socket to connect to, instead of the host of the URL. */
  readonly socketPath?: string | undefined;
  /** Additional trusted certificates, in PEM. */
  readonly ca: string | undefined;
  /** Environment variables that name proxies and certificates. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /**
   * The narrowest network scope (`network-scope.ts`) that the address may have to which the connection is opened;
   * undefined: any. Through a proxy, the text of the host counts, because the proxy resolves names.
   */
  readonly allowedScope?: number | undefined;
}

/** Time limit for connecting, including the proxy and TLS, in ms. */
const CONNECT_TIMEOUT = 20_000;
/** Idle time before TCP keep-alive probes, in ms: they detect a peer that has vanished without closing. */
const KEEP_ALIVE_DELAY = 30_000;

/**
 * Opens a connection to the host of a URL, with TLS for `https:`, and through a proxy if the environment names one.
 * @throws {HubError} unreachable, tlsFailed, or serverRefused because of `allowedScope` (nothing was sent); or the
 * signal's reason
 */
export async function openSocket(
  url: URL,
  options: ConnectOptions,
  signal: AbortSignal,
): Promise<OpenedSocket> {
  if (options.socketPath !== undefined) {
    const socket = connect({ path: options.socketPath });
    return directSocket(await whenConnected(socket, "connect", url, signal));
  }
  const { allowedScope } = options;
  if (allowedScope !== undefined && networkScopeOf(url.hostname) > allowedScope)
    throw connectFailure("serverRefused", narrowScopeText(url, url.hostname));
  const proxy = proxyFor(url, options.env);
  if (typeof proxy === "string") {
    throw connectFailure(
      "unreachable",
      "The proxy that the environment names is not supported: its URL must begin with http:// or https://.",
    );
  }
  const timeout = new AbortController();
  const timer = setTimeout(() => {
    timeout.abort(
      connectFailure(
        "unreachable",
        `${url.host} did not answer within ${formatDuration(CONNECT_TIMEOUT)}.`,
      ),
    );
  }, CONNECT_TIMEOUT);
  const combined = AbortSignal.any([signal, timeout.signal]);
  try {
    if (proxy === undefined)
      return directSocket(await connectTo(url, undefined, options, combined));
    // The environment names the proxy, so its address may be of any scope.
    const toProxy = { ...options, allowedScope: undefined };
    const socket = await connectTo(proxy, undefined, toProxy, combined).catch((error: unknown) => {
      throw error instanceof HubError
        ? connectFailure(
            error.code,
            `${error.message} It is the proxy for ${url.host} that the environment names.`,
          )
        : error;
    });
    const proxyHeaderLines = proxyAuthorizationLine(proxy);
    if (url.protocol === "http:") return { socket, usesAbsoluteForm: true, proxyHeaderLines };
    await openTunnel(socket, url, proxy, proxyHeaderLines, combined);
    return directSocket(await connectTo(url, socket, options, combined));
  } finally {
    clearTimeout(timer);
  }
}

function directSocket(socket: Socket): OpenedSocket {
  return { socket, usesAbsoluteForm: false, proxyHeaderLines: "" };
}

/** Connects to the host of a URL. @param through an open connection to a proxy, used instead of a new connection */
async function connectTo(
  url: URL,
  through: Socket | undefined,
  { ca, env, allowedScope }: ConnectOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const host = hostWithoutBrackets(url);
  const port = portOf(url);
  // The connection is opened to the address that was checked: a second look-up of the name could give another one.
  const address =
    allowedScope === undefined || through !== undefined
      ? host
      : await allowedAddressOf(url, allowedScope);
  signal.throwIfAborted();
  if (url.protocol === "http:") {
    const socket = connect({ host: address, port, noDelay: true });
    socket.setKeepAlive(true, KEEP_ALIVE_DELAY);
    return whenConnected(socket, "connect", url, signal);
  }
  const certificates = await loadTrustedCertificates(ca, env);
  signal.throwIfAborted();
  const options = {
    ...(through === undefined ? { host: address, port } : { socket: through }),
    ...(isIP(host) === 0 && { servername: host }),
    ...(certificates !== undefined && { ca: [...certificates] }),
    ALPNProtocols: ["http/1.1"],
  };
  let socket: TLSSocket;
  try {
    socket = secure(options);
  } catch (error) {
    // One of the additional certificates must be invalid, because the runtime's own certificates are valid.
    const text = `The additional certificates (ca, NODE_EXTRA_CA_CERTS, SSL_CERT_FILE) are invalid: ${String(error)}.`;
    throw connectFailure("tlsFailed", text);
  }
  if (through === undefined) {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_DELAY);
  }
  return whenConnected(socket, "secureConnect", url, signal);
}

/** An address of the host whose scope is allowed. @throws {HubError} serverRefused if it has none, unreachable */
async function allowedAddressOf(url: URL, allowedScope: number): Promise<string> {
  const found = await resolveScopes(url.hostname);
  const [first] = found;
  if (first === undefined)
    throw connectErrorOf(Object.assign(new Error("not found"), { code: "ENOTFOUND" }), url);
  const allowed = found.find(({ scope }) => scope <= allowedScope);
  if (allowed === undefined)
    throw connectFailure("serverRefused", narrowScopeText(url, first.address));
  return allowed.address;
}

function narrowScopeText({ host }: URL, address: string): string {
  return `${host} was not connected to: ${address} is an address of a private network or of this machine, which the manifest does not name. If it is right, write it in the manifest.`;
}

function whenConnected(
  socket: Socket,
  event: "connect" | "secureConnect",
  url: URL,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const removeListeners = (): void => {
      socket.off(event, onConnected);
      socket.off("error", onError);
      socket.off("close", onClose);
      signal.removeEventListener("abort", onAbort);
    };
    const failWith = (error: unknown): void => {
      removeListeners();
      // Ignores all later errors of the socket: an unhandled error would end the process.
      socket.on("error", () => {});
      socket.destroy();
      reject(error);
    };
    const onConnected = (): void => {
      removeListeners();
      // Ignores errors that occur before the caller uses the socket: an unhandled error would end the process.
      socket.on("error", () => {});
      resolve(socket);
    };
    const onError = (error: Error): void => failWith(connectErrorOf(error, url));
    const onClose = (): void =>
      failWith(connectErrorOf(new Error("the connection was closed"), url));
    const onAbort = (): void => failWith(signal.reason);
    socket.on(event, onConnected);
    socket.on("error", onError);
    socket.on("close", onClose);
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
  });
}

/** Opens a tunnel through the proxy (CONNECT, RFC 9110, 9.3.6). @throws {HubError} unreachable */
function openTunnel(
  socket: Socket,
  url: URL,
  proxy: URL,
  headerLines: string,
  signal: AbortSignal,
): Promise<void> {
  const target = `${url.hostname}:${portOf(url)}`;
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${headerLines}\r\n`, "latin1");
  return new Promise((resolve, reject) => {
    let received: Buffer = Buffer.alloc(0);
    const removeListeners = (): void => {
      socket.off("data", onData);
      socket.off("error", onError);
      socket.off("close", onClose);
      signal.removeEventListener("abort", onAbort);
    };
    const failWith = (error: unknown): void => {
      removeListeners();
      socket.on("error", () => {});
      socket.destroy();
      reject(error);
    };
    const onData = (chunk: Buffer): void => {
      received = Buffer.concat([received, chunk]);
      let parsed: ReturnType<typeof parseResponseHead>;
      try {
        parsed = parseResponseHead(received);
      } catch (error) {
        failWith(error);
        return;
      }
      if (parsed === undefined) return;
      const status = parsed === "malformed" ? undefined : parsed.head.status;
      if (status !== undefined && status >= 200 && status < 300) {
        socket.pause();
        removeListeners();
        resolve();
      } else {
        failWith(connectFailure("unreachable", describeProxyRefusal(url, proxy, status)));
      }
    };
    const onError = (error: Error): void => failWith(connectErrorOf(error, proxy));
    const onClose = (): void =>
      failWith(connectFailure("unreachable", describeProxyRefusal(url, proxy, undefined)));
    const onAbort = (): void => failWith(signal.reason);
    socket.on("data", onData);
    socket.on("error", onError);
    socket.on("close", onClose);
    signal.addEventListener("abort", onAbort);
  });
}

function describeProxyRefusal({ host }: URL, proxy: URL, status: number | undefined): string {
  const subject = `The proxy ${proxy.host} that the environment names`;
  if (status === undefined) return `${subject} does not work as a proxy.`;
  if (status === 407)
    return `${subject} requires a name and a password (HTTP 407): write them in its URL.`;
  return `${subject} refuses connections to ${host} (HTTP ${status}).`;
}

function proxyAuthorizationLine(proxy: URL): string {
  const value = basicAuthorization(proxy);
  return value === undefined ? "" : `Proxy-Authorization: ${value}\r\n`;
}

function connectFailure(code: HubError["code"], text: string): HubError {
  return new HubError(code, text, { step: "dial" });
}

/**
 * Explains why a connection failed. The patterns match error codes and messages of the operating system, OpenSSL,
 * BoringSSL and rustls. Deno reports the same error for every untrusted certificate.
 */
function connectErrorOf(error: Error, url: URL): HubError {
  const { code } = error as { code?: unknown };
  const { host } = url;
  const text = `${typeof code === "string" ? code : ""} ${error.message}`;
  const problem = CONNECT_PROBLEMS.find(({ pattern }) => pattern.test(text));
  if (problem !== undefined) {
    return new HubError(problem.code, problem.describe(host), { step: "dial", cause: error });
  }
  const isTlsError = url.protocol === "https:" && /SSL|TLS|CERT/i.test(text);
  const message = `The connection to ${host} failed: ${error.message}.`;
  return new HubError(isTlsError ? "tlsFailed" : "unreachable", message, {
    step: "dial",
    cause: error,
  });
}

interface ConnectProblem {
  readonly pattern: RegExp;
  readonly code: "unreachable" | "tlsFailed";
  describe(host: string): string;
}

const TRUST_ADVICE = `name the certificate of its issuer ("ca" in the manifest, or NODE_EXTRA_CA_CERTS)`;

const CONNECT_PROBLEMS: readonly ConnectProblem[] = [
  {
    pattern: /CERT_HAS_EXPIRED|certificate has expired|peer certificate: Expired/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} has expired: its operator must renew it.`,
  },
  {
    pattern: /CERT_NOT_YET_VALID|NotValidYet|not yet valid/i,
    code: "tlsFailed",
    describe: (host) =>
      `The certificate of ${host} is not valid yet: is this machine's clock right?`,
  },
  {
    pattern: /ALTNAME_INVALID|HOSTNAME_MISMATCH|NotValidForName|certificate not valid for name/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} is for another name: is the URL right?`,
  },
  {
    pattern: /DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT_IN_CHAIN|self[- ]signed/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} is self-signed: to trust it, ${TRUST_ADVICE}.`,
  },
  {
    pattern: /UNABLE_TO_(?:VERIFY|GET_ISSUER)|UnknownIssuer|unable to (?:verify|get)/i,
    code: "tlsFailed",
    describe: (host) =>
      runtimeName === "deno"
        ? `The certificate of ${host} is not trusted. It may have expired, or been issued by an authority that this machine does not trust: then ${TRUST_ADVICE}.`
        : `The certificate of ${host} was issued by an authority that this machine does not trust: ${TRUST_ADVICE}.`,
  },
  {
    pattern: /CERT_REVOKED|Revoked/,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} was revoked.`,
  },
  {
    pattern:
      /WRONG_VERSION_NUMBER|packet length too long|InvalidContentType|HTTP_REQUEST|corrupt message|ERR_SSL_PACKET_LENGTH/i,
    code: "tlsFailed",
    describe: (host) =>
      `${host} does not use TLS on this port: must the URL begin with http:// instead?`,
  },
  {
    pattern: /ALERT_CERTIFICATE_REQUIRED|CertificateRequired|BAD_CERTIFICATE/i,
    code: "tlsFailed",
    describe: (host) => `${host} requires a client certificate, which toolmux does not support.`,
  },
  {
    pattern:
      /ALERT_PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|ProtocolVersion|NO_SHARED_CIPHER|HANDSHAKE_FAILURE/i,
    code: "tlsFailed",
    describe: (host) => `${host} and the hub have no version of TLS in common.`,
  },
  {
    pattern: /ECONNREFUSED|Connection refused/i,
    code: "unreachable",
    describe: (host) => `Nothing listens at ${host} (connection refused): does the server run?`,
  },
  {
    pattern: /ENOTFOUND|ENODATA|EAI_NONAME|ENONAME|Name or service not known|failed to lookup/i,
    code: "unreachable",
    describe: (host) => `The name in ${host} does not exist (DNS): is the URL right?`,
  },
  {
    pattern: /EAI_AGAIN|Temporary failure/i,
    code: "unreachable",
    describe: (host) => `The name in ${host} cannot be looked up (DNS): is this machine online?`,
  },
  {
    pattern: /EHOSTUNREACH|ENETUNREACH|ENETDOWN|unreachable/i,
    code: "unreachable",
    describe: (host) => `There is no route to ${host}: is this machine online?`,
  },
  {
    pattern: /ETIMEDOUT|timed out/i,
    code: "unreachable",
    describe: (host) => `${host} does not answer (timed out).`,
  },
  {
    pattern: /EMFILE|ENFILE/,
    code: "unreachable",
    describe: (host) => `The connection to ${host} failed: too many files are open (ulimit -n).`,
  },
];
