import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { withDeadline, poll } from "../harness/wait.ts";
import { patienceWith, type PluginUnderTest, withFolder } from "./plugin-setup.ts";

/** What plugins left behind in the process in which they were used and disposed of, by plugin; those that did. */
export type ProcessReport = Readonly<Record<string, readonly string[]>>;

/** Time limit for the process to finish its work, in ms. */
const WORK_LIMIT = 20_000;
const CHILD = fileURLToPath(new URL("plugin-process-child.ts", import.meta.url));

/**
 * Uses plugins one after the other in a process of their own and disposes of them. The process must exit by itself and
 * write nothing to stdout.
 */
export function runInOwnProcess(subjects: readonly PluginUnderTest[]): Promise<void> {
  return withFolder(async (folder) => {
    const file = join(folder, "report.json");
    const args = [CHILD, file, JSON.stringify(subjects)];
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
      const patience = Math.max(...subjects.map(patienceWith));
      const what = (): string =>
        "the process to end: the plugin has left something that keeps it running";
      await withDeadline<void>(patience, what, (resolve) => void exited.then(resolve));
    } finally {
      if (!hasExited) child.kill("SIGKILL");
      await exited;
    }
    assert.ok(existsSync(file), `the process ended early: ${output.stderr}`);
    const report = JSON.parse(readFileSync(file, "utf8")) as ProcessReport;
    assert.deepEqual(report, {});
    assert.equal(output.stdout, "", "stdout belongs to the protocol");
    assert.equal(child.exitCode, 0, output.stderr);
  });
}
