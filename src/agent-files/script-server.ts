import { spawn } from "node:child_process";
import { Buffer } from "node:buffer";
import type { CallToolResult, McpServer } from "@modelcontextprotocol/server";
import type { Env } from "../base/paths.ts";
import { VERSION } from "../base/version.ts";
import { isTable, type Table } from "../manifest/table.ts";
import { sendSignal } from "../process/process-group.ts";
import type { Script } from "./toolsets.ts";

/** Maximum size of what a command prints that is kept, in bytes. */
const MAX_OUTPUT = 200_000;
/** Time between SIGTERM and SIGKILL for a command that is cancelled, in ms. */
const GRACE = 2000;

/** The process groups of the commands that run. */
const running = new Set<number>();

/** Kills all commands that run, with their children. */
export function killScripts(): void {
  for (const group of running) sendSignal(-group, "SIGKILL");
}

/**
 * An MCP server whose tools are the commands of a toolset `script`.
 * @param environment the environment variables of all commands
 */
export async function createScriptServer(
  scripts: readonly Script[],
  environment: Env,
): Promise<McpServer> {
  const { fromJsonSchema, McpServer } = await import("@modelcontextprotocol/server");
  const server = new McpServer({ name: "scripts", version: VERSION });
  for (const script of scripts) {
    const { name, cmd, description, args, required } = script;
    const properties = Object.fromEntries(
      Object.entries(args).map(([key, schema]) => [
        key,
        { type: "string", ...(isTable(schema) ? schema : {}) },
      ]),
    );
    server.registerTool(
      name,
      {
        description: description ?? `Runs: ${cmd}`,
        inputSchema: fromJsonSchema<Table>({ type: "object", properties, required: [...required] }),
      },
      (given, { mcpReq: { signal } }) => runScript(script, given, environment, signal),
    );
  }
  return server;
}

/** Runs a command in a shell. Its arguments are environment variables, so no text of a model becomes a command. */
function runScript(
  { cmd, args, env, workingDir }: Script,
  given: Table,
  environment: Env,
  signal: AbortSignal,
): Promise<CallToolResult> {
  const variables: Record<string, string> = {};
  for (const key of Object.keys(args)) {
    const value = given[key];
    if (value === undefined || value === null) continue;
    variables[key] = typeof value === "string" ? value : JSON.stringify(value);
  }
  const text = (what: string, isError = false): CallToolResult => {
    return { content: [{ type: "text", text: what }], isError };
  };
  if (Object.values(variables).some((value) => value.includes("\0")))
    return Promise.resolve(text("An argument must not have the character NUL.", true));
  if (signal.aborted) return Promise.resolve(text("The call was cancelled.", true));
  return new Promise((resolve) => {
    // Both streams of the command are one pipe: of two, nobody could tell in which order they were written.
    const child = spawn("/bin/sh", ["-c", 'exec /bin/sh -c "$0" 2>&1', cmd], {
      ...(workingDir !== undefined && { cwd: workingDir }),
      env: { ...environment, ...env, ...variables },
      stdio: ["ignore", "pipe", "ignore"],
      // A process group of its own, so that the children of the command can be ended with it.
      detached: true,
    });
    const group = child.pid;
    if (group !== undefined) running.add(group);
    const pieces: Buffer[] = [];
    let size = 0;
    const keep = (piece: Buffer): void => {
      const room = MAX_OUTPUT - size;
      if (room > 0) pieces.push(piece.subarray(0, room));
      size += piece.length;
    };
    child.stdout.on("data", keep);
    const stop = (): void => {
      if (group === undefined) return;
      sendSignal(-group, "SIGTERM");
      setTimeout(() => running.has(group) && sendSignal(-group, "SIGKILL"), GRACE);
    };
    signal.addEventListener("abort", stop, { once: true });
    const end = (result: CallToolResult): void => {
      signal.removeEventListener("abort", stop);
      if (group !== undefined) running.delete(group);
      resolve(result);
    };
    child.on("error", ({ message }) =>
      end(text(`The command cannot be started: ${message}`, true)),
    );
    child.on("close", (code, by) => {
      const cut = size > MAX_OUTPUT ? `\n[cut: ${size} bytes]` : "";
      const output = `${Buffer.concat(pieces).toString()}${cut}`;
      if (code === 0) end(text(output));
      else end(text(`${output}\n[ended by ${by ?? `exit code ${code}`}]`.trimStart(), true));
    });
  });
}
