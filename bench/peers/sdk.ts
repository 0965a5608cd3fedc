/**
 * The fastest relay over stdio that can be built with the MCP SDK. One Client is connected to the server, which the
 * relay starts with the command in its arguments. A low-level Server on the relay's own stdio forwards requests
 * unchanged; results are neither validated nor changed.
 */
import process from "node:process";
import { Client, type StandardSchemaV1 } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Server } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";

type Result = Record<string, unknown>;

/** A schema that accepts any result unchanged. The SDK's own schemas would parse it. */
const ANY: StandardSchemaV1<unknown, Result> = {
  "~standard": { version: 1, vendor: "bench", validate: (value) => ({ value: value as Result }) },
};
/** The longest timeout that a timer can have, in ms. */
const NO_LIMIT = 2 ** 31 - 1;

const [command = "", ...args] = process.argv.slice(2);
const identity = { name: "sdk", version: "1.0.0" };

const client = new Client(identity, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));

// The high-level server parses requests, which a relay must not do.
// oxlint-disable-next-line typescript/no-deprecated
const server = new Server(identity, { capabilities: { tools: {} } });
server.fallbackRequestHandler = ({ method, params }) =>
  client.request(params === undefined ? { method } : { method, params }, ANY, {
    timeout: NO_LIMIT,
  });
// The SDK's objects offer no other way to listen for events.
// oxlint-disable-next-line unicorn/prefer-add-event-listener
server.onclose = () => void client.close();
await server.connect(new StdioServerTransport());
