/**
 * A client that a test kills: starts the command in its arguments and never exits by itself.
 * First argument: "relay" (the command gets pipes, to which this process relays its own stdin and stdout) or "inherit"
 * (the command gets this process's own stdin and stdout, which other processes hold open).
 */
import { spawn } from "node:child_process";

const [mode, command, ...args] = process.argv.slice(2);
const stdio = mode === "relay" ? "pipe" : "inherit";
const child = spawn(command, args, { stdio: [stdio, stdio, "ignore"] });
if (mode === "relay") {
  process.stdin.pipe(child.stdin);
  child.stdout.pipe(process.stdout);
}
setInterval(() => {}, 60_000);
