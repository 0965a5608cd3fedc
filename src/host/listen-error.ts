import { createServer } from "node:net";
import { basename } from "node:path";
import { HubError } from "../base/errors.ts";
import { findPortOwner, type PortOwner } from "../process/port-owner.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import type { HttpAddress } from "./http-address.ts";

/** Time limit of the request that asks whether another toolmux serves an address, in ms. */
const PROBE_TIMEOUT = 1000;

/** Why an address cannot be listened on, and what the user can do. */
export interface ListenProblem {
  /** A full sentence. */
  readonly text: string;
  /** A full sentence. */
  readonly advice: string;
}

const SYSTEM_REASONS: Readonly<Record<string, string>> = {
  EACCES: "this user has no permission to listen there",
  EADDRNOTAVAIL: "this machine does not have that address",
  ENOTFOUND: "that host name is unknown",
};

/**
 * Explains why an address cannot be listened on. If the port is taken, the text names the process that has it.
 * @param code the system's error code, such as `EADDRINUSE`
 * @param option the option that sets the address; `--port` sets only its port
 */
export async function explainListenError(
  { hostname, port }: Pick<HttpAddress, "hostname" | "port">,
  code: string,
  { platform }: Pick<SystemEnvironment, "platform">,
  option: "--http" | "--port" = "--http",
): Promise<ListenProblem> {
  const place = `${hostname}:${port}`;
  const host = hostname === "127.0.0.1" ? "" : `${hostname}:`;
  const otherPort = `${option} ${host}${port < 65_535 ? port + 1 : port - 1}`;
  if (code !== "EADDRINUSE") {
    const text = `toolmux cannot listen on ${place}: ${SYSTEM_REASONS[code] ?? code}.`;
    const advice =
      code === "EACCES" && port < 1024
        ? `Ports below 1024 are reserved: choose another one, such as ${option} 8700.`
        : `Choose another address, such as --http 127.0.0.1:${port}.`;
    return { text, advice };
  }
  const owner = await findPortOwner(port, platform);
  const url = `http://${hostname}:${port}`;
  if (await isToolmux(url)) {
    return {
      text: `Port ${port} is taken by another toolmux${describeHub(owner)}.`,
      advice: `Connect clients to ${url}/mcp, or choose another port: ${otherPort}`,
    };
  }
  const who =
    owner === undefined
      ? "another process"
      : `"${basename(owner.command[0] ?? "unknown")}" (pid ${owner.pid})`;
  return {
    text: `Port ${port} is taken by ${who}.`,
    advice: `Stop that process, or choose another port: ${otherPort}`,
  };
}

/** The error of a hub that cannot listen on its address. @param error what `startHttpServer` threw */
export async function listenErrorOf(
  address: Pick<HttpAddress, "hostname" | "port">,
  error: unknown,
  context: Pick<SystemEnvironment, "platform">,
  option: "--http" | "--port" = "--http",
): Promise<HubError> {
  const cause: unknown = error instanceof HubError ? error.cause : error;
  const { code, message } = cause as NodeJS.ErrnoException;
  const { text, advice } = await explainListenError(address, code ?? message, context, option);
  return new HubError("usage", text, { hint: advice });
}

async function isToolmux(url: string): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(PROBE_TIMEOUT);
    const response = await fetch(`${url}/healthz`, { signal, redirect: "error" });
    const body: unknown = await response.json();
    return typeof body === "object" && body !== null && "alive" in body && body.alive === true;
  } catch {
    return false;
  }
}

/** Describes the hub that has the port: its pid, and the manifests that its command line names. */
function describeHub(owner: PortOwner | undefined): string {
  if (owner === undefined) return "";
  const files = owner.command.flatMap((word, at) => {
    if (word === "--config" || word === "-c") return owner.command.slice(at + 1, at + 2);
    return word.startsWith("--config=") ? [word.slice("--config=".length)] : [];
  });
  const manifest = files.length === 0 ? "" : `, manifest ${files.join(", ")}`;
  return ` (pid ${owner.pid}${manifest})`;
}

/** Tries to listen on a port. @returns the system's error code if that fails; undefined if it works */
export function tryPort(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "unknown error"));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
