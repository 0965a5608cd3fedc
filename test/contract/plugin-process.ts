import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { runtimeName } from "../../src/base/runtime.ts";
import { withDeadline, poll } from "../harness/wait.ts";
import { type PluginUnderTest, withFolder } from "./plugin-setup.ts";

/** What a plugin left behind in the process in which it was used and disposed of. */
export interface ProcessReport {
  /** Changed process state: the working directory, environment variables, listeners. */
  readonly changedState: readonly string[];
  /** Uncaught errors. */
  readonly uncaught: readonly string[];
}

/** Time limits for the process to finish its work, and then to exit by itself, in ms. */
const WORK_LIMIT = 20_000;
const EXIT_LIMIT = 3000;
const CHILD = fileURLToPath(new URL("plugin-process-child.ts", import.meta.url));
const ARGS = { bun: [], deno: ["run", "-A", "--no-check"], node: ["--experimental-strip-types"] };

/**
 * Uses a plugin in a process of its own and disposes of it. The process must exit by itself and write nothing to
 * stdout.
 */
export function runInOwnProcess(subject: PluginUnderTest): Promise<void> {
  return withFolder(async (folder) => {
    const file = join(folder, "report.json");
    const args = [...ARGS[runtimeName], CHILD, file, JSON.stringify(subject)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => void (output[name] += text));
    }
    let hasExited = false;
    const exited = new Promise<void>((resolve) => {
      child.on("close", () => {
        hasExited = true;
        resolve();
      });
    });
    try {
      await poll(
        WORK_LIMIT,
        () => `the plugin to be used and ended; stderr: ${output.stderr}`,
        () => (existsSync(file) || hasExited ? true : undefined),
      );
      const what = (): string =>
        "the process to end: the plugin has left something that keeps it running";
      await withDeadline<void>(EXIT_LIMIT, what, (resolve) => void exited.then(resolve));
    } finally {
      if (!hasExited) child.kill("SIGKILL");
      await exited;
    }
    assert.ok(existsSync(file), `the process ended early: ${output.stderr}`);
    const report = JSON.parse(readFileSync(file, "utf8")) as ProcessReport;
    assert.deepEqual(report, { changedState: [], uncaught: [] } satisfies ProcessReport);
    assert.equal(output.stdout, "", "stdout belongs to the protocol");
    assert.equal(child.exitCode, 0, output.stderr);
  });
}
