import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { runtimeName } from "../../src/base/runtime.ts";
import { deadline, poll } from "../harness/clock.ts";
import { type Subject, withFolder } from "./specimen.ts";

/** What a process in which a plugin was used and ended has to say. */
export interface Report {
  /** What is otherwise than before: the working directory, variables, listeners. */
  readonly altered: readonly string[];
  /** Errors that nobody caught. */
  readonly uncaught: readonly string[];
}

/** How long a process may take for its work, and then to end by itself, in ms. */
const WORK = 20_000;
const END = 3000;
const CHILD = fileURLToPath(new URL("child.ts", import.meta.url));
const ARGS = { bun: [], deno: ["run", "-A", "--no-check"], node: ["--experimental-strip-types"] };

/** Uses a plugin in a process of its own, and ends it. The process has to say nothing on stdout, and to end by itself. */
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
