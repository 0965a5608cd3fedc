import {
  createRequestStateCodec,
  McpServer,
  type McpRequestContext,
  type ServerNotifier,
} from "@modelcontextprotocol/server";
import { registerChangeTools } from "./change-tools.ts";
import { registerLoggingTools } from "./logging-tools.ts";
import { registerPrompts } from "./prompts.ts";
import { registerInputTools } from "./input-tools.ts";
import { registerResources } from "./resources.ts";
import { registerMultiRoundTools, type Step } from "./multi-round-tools.ts";
import { registerTools } from "./tools.ts";

/*
 * test/conformance: what scripts/conformance.ts runs the official conformance suites against. `createServer` (here) is
 * the server that the suites test, directly and through the hub (targets.ts); clients.ts has the clients for the
 * client suites; results.ts compares their results with expected-failures.ts.
 */

/** The key of request states: the same in all processes, so that each can continue what another began. */
const KEY = "everything is known to everybody here";
const codec = createRequestStateCodec<Step>({ key: KEY });

/** Options of one instance of the server. */
export interface ServerOptions extends Pick<McpRequestContext, "era"> {
  /** Notifies subscribers where an instance lives for one request only. */
  readonly notify?: ServerNotifier;
}

/** The tools, prompts and resources that the scenarios of the official suites expect, by their names, in either era. */
export function createServer({ era, notify }: ServerOptions): McpServer {
  const server = new McpServer(
    { name: "everything", version: "1.0.0" },
    {
      capabilities: { completions: {}, logging: {}, resources: { subscribe: true } },
      instructions: "Call whatever there is.",
      requestState: { verify: codec.verify },
    },
  );
  registerTools(server);
  registerLoggingTools(server);
  registerInputTools(server, era);
  registerMultiRoundTools(server, codec);
  registerResources(server);
  registerPrompts(server);
  registerChangeTools(server, notify);
  return server;
}
