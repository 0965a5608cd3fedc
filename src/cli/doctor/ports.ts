import { createServer } from "node:net";
import type { Finding } from "./findings.ts";
import type { ServerSpec } from "../../manifest/manifest.ts";
import { type HttpOptions, readHttpAddress } from "../http-address.ts";
import type { CommandContext } from "../command.ts";

/** Checks that the ports for HTTP and for OAuth callbacks are free. @throws {HubError} usage */
export async function checkPorts(
  options: HttpOptions,
  servers: readonly ServerSpec[],
  context: CommandContext,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  const address = readHttpAddress(options, context);
  if (address !== undefined && address.port !== 0) {
    const { hostname, port } = address;
    const reason = await tryPort(hostname.replace(/^\[|\]$/g, ""), port);
    if (reason !== undefined) {
      const text = `Nobody can serve at ${hostname}:${port} now: ${reason}.`;
      const advice =
        "If a hub runs there already, that is as it should be; else take another port.";
      findings.push({ code: "TM501", subject: `${hostname}:${port}`, text, advice });
    }
  }
  for (const spec of servers) {
    const port = spec.enabled && spec.kind === "remote" ? spec.oauth.callbackPort : undefined;
    const reason = port === undefined ? undefined : await tryPort("127.0.0.1", port);
    if (port === undefined || reason === undefined) continue;
    const text = `Its oauth.callbackPort, ${port}, cannot be used now: ${reason}.`;
    const advice = "End what listens there before you log in, or leave out oauth.callbackPort.";
    findings.push({ code: "TM502", subject: spec.name, text, advice });
  }
  return findings;
}

const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process listens there",
  EACCES: "this user may not listen there",
  EADDRNOTAVAIL: "this machine has no such address",
};

/** @returns why listening fails; undefined if it works */
function tryPort(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) =>
      resolve(LISTEN_ERRORS[error.code ?? ""] ?? error.code ?? "unknown error"),
    );
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
