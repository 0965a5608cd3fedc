import type { Finding } from "./findings.ts";
import type { ServerSpec } from "../../manifest/manifest.ts";
import type { HttpAddress } from "../http-address.ts";
import { explainListenError, tryPort } from "../listen-error.ts";
import type { HostContext } from "../context.ts";

/**
 * Checks that the ports for HTTP and for OAuth callbacks are free.
 * @param address the address for HTTP; undefined: none is wanted
 */
export async function checkPorts(
  address: HttpAddress | undefined,
  servers: readonly ServerSpec[],
  context: HostContext,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
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
