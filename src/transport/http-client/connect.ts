import { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { connect, isIP, type Socket } from "node:net";
import * as tls from "node:tls";
import { connect as secure, type TLSSocket } from "node:tls";
import { HubError } from "../../base/errors.ts";
import { connectErrorOf } from "./connect-errors.ts";
import { parseResponseHead } from "./connection.ts";
import type { OpenedSocket } from "./pool.ts";
import { hostWithoutBrackets, portOf, proxyFor } from "./proxy.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Environment variables that name a PEM file of additional certificates. */
const VARIABLES = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] as const;

/**
 * Loads the trusted CA certificates: those of the system or runtime, `ca` of the manifest, and the files that
 * `NODE_EXTRA_CA_CERTS` and `SSL_CERT_FILE` name.
 * @returns undefined if nothing is added to the runtime's own certificates
 * @throws {HubError} tlsFailed if a file cannot be read
 */
export async function loadTrustedCertificates(
  ca: string | undefined,
  env: Env,
): Promise<readonly string[] | undefined> {
  const added = ca === undefined ? [] : [ca];
  for (const name of VARIABLES) {
    const path = env[name];
    if (path !== undefined && path !== "") added.push(await readPem(name, path));
  }
  return added.length === 0 ? undefined : [...usual(), ...added];
}

async function readPem(name: string, path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const text = `The certificates that ${name} names (${path}) cannot be read: ${reasonOf(error)}.`;
    throw new HubError("tlsFailed", text, { step: "dial" });
  }
}

function reasonOf(error: unknown): string {
  return (error as { code?: unknown }).code === "ENOENT" ? "there is no such file" : String(error);
}

/** The default certificates. The TLS option `ca` replaces them, so they have to be passed with any addition. */
function usual(): readonly string[] {
  const known: { getCACertificates?(kind: "default" | "system"): readonly string[] } = tls;
  if (known.getCACertificates === undefined) return tls.rootCertificates;
  return [
    ...new Set([...known.getCACertificates("default"), ...known.getCACertificates("system")]),
  ];
}

/** Options for connecting. */
export interface ConnectOptions {
  /** Additional trusted certificates, in PEM. */
  readonly ca: string | undefined;
  /** Environment variables that name proxies and certificates. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Time limit for connecting, including the proxy and TLS, in ms. */
const CONNECT_LIMIT = 20_000;
/** Idle time before TCP keep-alive probes, in ms: they detect a peer that has vanished without closing. */
const SILENCE = 30_000;

/**
 * Opens a connection to the host of a URL, through a proxy if the environment names one, and with TLS for `https:`.
 * @throws {HubError} unreachable or tlsFailed (nothing was sent); or the signal's reason
 */
export async function openSocket(
  url: URL,
  parts: ConnectOptions,
  signal: AbortSignal,
): Promise<OpenedSocket> {
  const detour = proxyFor(url, parts.env);
  if (typeof detour === "string") {
    throw fail(
      "unreachable",
      `The proxy of the environment is none that can be used: its URL has to begin with http:// or https://.`,
    );
  }
  const over = new AbortController();
  const timer = setTimeout(() => {
    over.abort(fail("unreachable", `${url.host} did not answer within ${CONNECT_LIMIT / 1000} s.`));
  }, CONNECT_LIMIT);
  const until = AbortSignal.any([signal, over.signal]);
  try {
    if (detour === undefined) return direct(await reach(url, undefined, parts, until));
    const socket = await reach(detour, undefined, parts, until).catch((error: unknown) => {
      throw error instanceof HubError
        ? fail(
            error.code,
            `${error.message} It is the proxy for ${url.host} that the environment names.`,
          )
        : error;
    });
    const fields = authorize(detour);
    if (url.protocol === "http:") return { socket, isRelayed: true, fields };
    await passThrough(socket, url, detour, fields, until);
    return direct(await reach(url, socket, parts, until));
  } finally {
    clearTimeout(timer);
  }
}

function direct(socket: Socket): OpenedSocket {
  return { socket, isRelayed: false, fields: "" };
}

/** Connects to the host of a URL; `through`: over this connection to a proxy. */
async function reach(
  url: URL,
  through: Socket | undefined,
  { ca, env }: ConnectOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const host = hostWithoutBrackets(url);
  const port = portOf(url);
  if (url.protocol === "http:") {
    const socket = connect({ host, port, noDelay: true });
    socket.setKeepAlive(true, SILENCE);
    return settle(socket, "connect", url, signal);
  }
  const authorities = await loadTrustedCertificates(ca, env);
  signal.throwIfAborted();
  const options = {
    ...(through === undefined ? { host, port } : { socket: through }),
    ...(isIP(host) === 0 && { servername: host }),
    ...(authorities !== undefined && { ca: [...authorities] }),
    ALPNProtocols: ["http/1.1"],
  };
  let socket: TLSSocket;
  try {
    socket = secure(options);
  } catch (error) {
    // Only the added certificates can be invalid.
    const text = `The certificates that are to be trusted beside the system's are none: ${String(error)}.`;
    throw fail("tlsFailed", text);
  }
  if (through === undefined) {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, SILENCE);
  }
  return settle(socket, "secureConnect", url, signal);
}

function settle(
  socket: Socket,
  event: "connect" | "secureConnect",
  url: URL,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      socket.off(event, arrived);
      socket.off("error", failed);
      socket.off("close", closed);
      signal.removeEventListener("abort", give);
    };
    const lose = (error: unknown): void => {
      end();
      // Errors after this one are ignored.
      socket.on("error", () => {});
      socket.destroy();
      reject(error);
    };
    const arrived = (): void => {
      end();
      // An error before the socket is used must not be unhandled.
      socket.on("error", () => {});
      resolve(socket);
    };
    const failed = (error: Error): void => lose(connectErrorOf(error, url));
    const closed = (): void => lose(connectErrorOf(new Error("the connection was closed"), url));
    const give = (): void => lose(signal.reason);
    socket.on(event, arrived);
    socket.on("error", failed);
    socket.on("close", closed);
    signal.addEventListener("abort", give);
    if (signal.aborted) give();
  });
}

/** Opens a tunnel through the proxy (CONNECT, RFC 9110, 9.3.6). @throws {HubError} unreachable */
function passThrough(
  socket: Socket,
  url: URL,
  detour: URL,
  fields: string,
  signal: AbortSignal,
): Promise<void> {
  const target = `${url.hostname}:${portOf(url)}`;
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${fields}\r\n`, "latin1");
  return new Promise((resolve, reject) => {
    let start: Buffer = Buffer.alloc(0);
    const end = (): void => {
      socket.off("data", read);
      socket.off("error", failed);
      socket.off("close", closed);
      signal.removeEventListener("abort", give);
    };
    const lose = (error: unknown): void => {
      end();
      socket.on("error", () => {});
      socket.destroy();
      reject(error);
    };
    const read = (chunk: Buffer): void => {
      start = Buffer.concat([start, chunk]);
      const found = parseResponseHead(start);
      if (found === undefined) return;
      const status = found === "malformed" ? undefined : found.head.status;
      if (status !== undefined && status >= 200 && status < 300) {
        socket.pause();
        end();
        resolve();
      } else {
        lose(fail("unreachable", explainRefusal(url, detour, status)));
      }
    };
    const failed = (error: Error): void => lose(connectErrorOf(error, detour));
    const closed = (): void => lose(fail("unreachable", explainRefusal(url, detour, undefined)));
    const give = (): void => lose(signal.reason);
    socket.on("data", read);
    socket.on("error", failed);
    socket.on("close", closed);
    signal.addEventListener("abort", give);
  });
}

function explainRefusal({ host }: URL, detour: URL, status: number | undefined): string {
  const which = `The proxy ${detour.host} that the environment names`;
  if (status === undefined) return `${which} does not answer as one.`;
  if (status === 407)
    return `${which} wants a name and a password (HTTP 407): write them in its URL.`;
  return `${which} does not let the hub through to ${host} (HTTP ${status}).`;
}

function authorize({ username, password }: URL): string {
  if (username === "" && password === "") return "";
  const text = `${decode(username)}:${decode(password)}`;
  return `Proxy-Authorization: Basic ${Buffer.from(text).toString("base64")}\r\n`;
}

/** Decodes percent escapes, and leaves a percent sign that begins none. */
function decode(text: string): string {
  return text.replace(/(?:%[0-9a-f]{2})+/gi, (escapes) => {
    try {
      return decodeURIComponent(escapes);
    } catch {
      return escapes;
    }
  });
}

function fail(code: HubError["code"], text: string): HubError {
  return new HubError(code, text, { step: "dial" });
}
