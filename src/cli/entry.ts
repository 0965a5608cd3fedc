import { ownCommand } from "../base/runtime.ts";

/** The entry for an MCP client's configuration that starts this program on these manifests, as JSON text. */
export function formatClientEntry(manifests: readonly string[]): string {
  const [command, ...before] = ownCommand();
  const args = [...before, "serve", ...manifests.flatMap((file) => ["--config", file])];
  return JSON.stringify({ mcpServers: { toolmux: { command, args } } }, null, 2);
}

/** The entry for an MCP client's configuration that goes to a hub at that URL with a bearer token, as JSON text. */
export function describeRemoteEntry(url: string, token: string): string {
  const headers = { Authorization: `Bearer ${token}` };
  return JSON.stringify({ mcpServers: { toolmux: { type: "http", url, headers } } }, null, 2);
}
