import {
  createRequestStateCodec,
  McpServer,
  type McpRequestContext,
  type ServerNotifier,
} from "@modelcontextprotocol/server";
import { registerChanges } from "./changes.ts";
import { registerLogging } from "./logging.ts";
import { registerPrompts } from "./prompts.ts";
import { registerQuestions } from "./questions.ts";
import { registerResources } from "./resources.ts";
import { registerRounds, type Step } from "./rounds.ts";
import { registerTools } from "./tools.ts";

/** It protects nothing, and is the same in all processes so that each may go on with what another began. */
const KEY = "everything is known to everybody here";
const codec = createRequestStateCodec<Step>({ key: KEY });

/** How one instance of the server is to be. */
export interface Making extends Pick<McpRequestContext, "era"> {
  /** Tells those who listen, where an instance cannot do so itself. */
  readonly notify?: ServerNotifier;
}

/** Offers and asks all that the scenarios of the official suites look for, under the names that they know, in either era. */
export function createServer({ era, notify }: Making): McpServer {
  const server = new McpServer(
    { name: "everything", version: "1.0.0" },
    {
      capabilities: { completions: {}, logging: {}, resources: { subscribe: true } },
      instructions: "Call whatever there is.",
      requestState: { verify: codec.verify },
    },
  );
  registerTools(server);
  registerLogging(server);
  registerQuestions(server, era);
  registerRounds(server, codec);
  registerResources(server);
  registerPrompts(server);
  registerChanges(server, notify);
  return server;
}
