/**
 * The client command of the client suites (last argument: the URL of the suite's server): has the process that listens
 * at the port TOOLMUX_CLIENTS run the client of the scenario (clients.ts), and fails if that fails. Run by bun.
 */
import { once } from "node:events";
import { connect } from "node:net";
import process from "node:process";
import { text } from "node:stream/consumers";
import type { ScenarioRun } from "./clients.ts";

const run: ScenarioRun = {
  scenario: process.env["MCP_CONFORMANCE_SCENARIO"] ?? "",
  context: process.env["MCP_CONFORMANCE_CONTEXT"] ?? "{}",
  revision: process.env["MCP_CONFORMANCE_PROTOCOL_VERSION"],
  url: process.argv.at(-1) ?? "",
};
const socket = connect(Number(process.env["TOOLMUX_CLIENTS"]), "127.0.0.1");
await once(socket, "connect");
socket.write(`${JSON.stringify(run)}\n`);
const problem = await text(socket);
if (problem !== "") throw new Error(problem);
