/**
 * The baseline for the cost of a process between a client and a server on this runtime. It starts the command in its
 * arguments, and copies bytes both ways without parsing them.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { input, output } from "./streams.ts";

const [command = "", ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });

child.stdout.on("data", (chunk: Buffer) => {
  void output.write(chunk);
  const flushed = output.flush();
  if (!(flushed instanceof Promise)) return;
  child.stdout.pause();
  const resume = () => void child.stdout.resume();
  flushed.then(resume, resume);
});
child.on("exit", (code) => process.exit(code ?? 1));

for await (const chunk of input) {
  if (!child.stdin.write(chunk)) await once(child.stdin, "drain");
}
child.stdin.end();
