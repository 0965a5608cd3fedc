/**
 * The fastest relay that can be made of the MCP SDK: one Client to the server that its arguments start, one
 * low-level Server on its own stdio, requests passed on raw, results neither validated nor changed.
 */
import process from "node:process";
import { Client, type StandardSchemaV1 } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Server } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";

type Result = Record<string, unknown>;

/** Takes any result as it is: the SDK's own schemas would take it apart. */
const ANY: StandardSchemaV1<unknown, Result> = {
  "~standard": { version: 1, vendor: "bench", validate: (value) => ({ value: value as Result }) },
};
/** ms; the longest that a timer can have. */
const NO_LIMIT = 2 ** 31 - 1;

const [command = "", ...args] = process.argv.slice(2);
const identity = { name: "sdk", version: "1.0.0" };

const client = new Client(identity, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));

// The high-level server takes requests apart, which is what a relay must not do.
// oxlint-disable-next-line typescript/no-deprecated
const server = new Server(identity, { capabilities: { tools: {} } });
server.fallbackRequestHandler = ({ method, params }) =>
  client.request(params === undefined ? { method } : { method, params }, ANY, {
    timeout: NO_LIMIT,
  });
// The SDK's objects have no other way to be listened to.
// oxlint-disable-next-line unicorn/prefer-add-event-listener
server.onclose = () => void client.close();
await server.connect(new StdioServerTransport());
