/**
 * An MCP server without tools that keeps a diary, so that it shows from outside when lives of it overlap. Its argument
 * is the file; `start <pid>` and `end <pid>` are lines in it, and `meet <pid>` for each other one that it finds alive.
 */
import { appendFileSync, readFileSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import { readUsage } from "../usage.ts";

const [file = ""] = process.argv.slice(2);

function note(word: string, pid: number): void {
  appendFileSync(file, `${word} ${pid}\n`);
}

function end(): void {
  note("end", process.pid);
  process.exit(0);
}

function answer(line: string): void {
  const { id, method } = JSON.parse(line) as { id?: number; method: string };
  if (id === undefined) return;
  const serverInfo = { name: "diary", version: "1.0.0" };
  const handshake = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo };
  const results: Record<string, object> = { initialize: handshake, "tools/list": { tools: [] } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result: results[method] ?? {} }));
}

note("start", process.pid);
// Whoever comes after this line looks for this one; whoever came before is found here.
const lines = readFileSync(file, "utf8").split("\n");
const pids = lines.filter((line) => line.startsWith("start")).map((line) => line.slice(6));
for (const pid of new Set(pids.map(Number))) {
  const hasEnded = lines.includes(`end ${pid}`);
  if (pid !== process.pid && !hasEnded && readUsage(pid) !== undefined) note("meet", pid);
}
process.on("SIGTERM", end);
createInterface({ input: process.stdin }).on("line", answer).on("close", end);
