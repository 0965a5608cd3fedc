/**
 * A client to be killed: starts the program that its arguments name and never ends by itself.
 * First argument: "pipe" (it opens a session over a pipe of its own, makes a call to the tool `a__hang` and waits)
 * or "inherit" (the program gets this process's stdin, and whoever holds the other end talks to it).
 */
import { spawn } from "node:child_process";

const [stdin, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: [stdin, "pipe", "ignore"] });
child.stdout.resume();
if (stdin === "pipe") {
  const send = (message) =>
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const clientInfo = { name: "victim", version: "1" };
  send({
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo },
  });
  send({ method: "notifications/initialized" });
  send({ id: 2, method: "tools/call", params: { name: "a__hang", arguments: {} } });
}
setInterval(() => {}, 60_000);
