import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { runtimeName } from "../../src/base/runtime.ts";
import { deadline, poll } from "../harness/wait.ts";
import { type Subject, withFolder } from "./plugin-setup.ts";

/** What a plugin left behind in the process in which it was used and disposed of. */
export interface Report {
  /** Changed process state: the working directory, environment variables, listeners. */
  readonly altered: readonly string[];
  /** Uncaught errors. */
  readonly uncaught: readonly string[];
}

/** Time limits for the process to finish its work, and then to exit by itself, in ms. */
const WORK = 20_000;
const END = 3000;
const CHILD = fileURLToPath(new URL("plugin-process-child.ts", import.meta.url));
const ARGS = { bun: [], deno: ["run", "-A", "--no-check"], node: ["--experimental-strip-types"] };

/**
 * Uses a plugin in a process of its own and disposes of it. The process must exit by itself and write nothing to
 * stdout.
 */
export function runAlone(subject: Subject): Promise<void> {
  return withFolder(async (folder) => {
    const file = join(folder, "report.json");
    const args = [...ARGS[runtimeName], CHILD, file, JSON.stringify(subject)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => void (output[name] += text));
    }
    let ended = false;
    const ending = new Promise<void>((resolve) => {
      child.on("close", () => {
        ended = true;
        resolve();
      });
    });
    try {
      await poll(
        WORK,
        () => `the plugin to be used and ended; stderr: ${output.stderr}`,
        () => (existsSync(file) || ended ? true : undefined),
      );
      const what = (): string =>
        "the process to end: the plugin has left something that keeps it running";
      await deadline<void>(END, what, (resolve) => void ending.then(resolve));
    } finally {
      if (!ended) child.kill("SIGKILL");
      await ending;
    }
    assert.ok(existsSync(file), `the process ended early: ${output.stderr}`);
    const report = JSON.parse(readFileSync(file, "utf8")) as Report;
    assert.deepEqual(report, { altered: [], uncaught: [] } satisfies Report);
    assert.equal(output.stdout, "", "stdout belongs to the protocol");
    assert.equal(child.exitCode, 0, output.stderr);
  });
}
