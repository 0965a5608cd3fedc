import type { Finding } from "./findings.ts";
import type { ServerSpec } from "../../manifest/manifest.ts";
import { type HttpOptions, readHttpAddress } from "../http-options.ts";
import { explainListenError, tryPort } from "../../host/listen-error.ts";
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
    const code = await tryPort(hostname.replace(/^\[|\]$/g, ""), port);
    if (code !== undefined) {
      const { text, advice } = await explainListenError(address, code, context);
      findings.push({ code: "TM501", subject: `${hostname}:${port}`, text, advice });
    }
  }
  for (const spec of servers) {
    const port = spec.enabled && spec.kind === "remote" ? spec.oauth.callbackPort : undefined;
    const code = port === undefined ? undefined : await tryPort("127.0.0.1", port);
    if (port === undefined || code === undefined) continue;
    const problem = await explainListenError({ hostname: "127.0.0.1", port }, code, context);
    const text = `Its oauth.callbackPort (${port}) cannot be used: ${problem.text}`;
    const advice =
      "Stop the process that listens there before you log in, or remove oauth.callbackPort.";
    findings.push({ code: "TM502", subject: spec.name, text, advice });
  }
  return findings;
}
