/**
 * A client to be killed: starts the program that its arguments name and never ends by itself.
 * First argument: "relay" (the program gets pipes of this process, which passes on what comes over its own
 * stdin and stdout) or "inherit" (the program gets this process's own stdin and stdout, which others hold open).
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
