import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Command } from "../peer.ts";
import { HttpConnection } from "./connection.ts";

/** Maximum time that a program may take until it serves (`START_LIMIT`) and to end (`END_LIMIT`), in ms. */
const START_LIMIT = 15_000;
const END_LIMIT = 5000;
/** Pause between two attempts to connect to a program that is starting, in ms. */
const START_PAUSE = 20;

/** A running program that serves over HTTP. */
export class Host {
  readonly url: URL;
  readonly pid: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: URL, pid: number) {
    this.#child = child;
    this.url = url;
    this.pid = pid;
  }

  /**
   * Starts a program.
   * @param known the program's URL, if the program does not print it on stderr
   * @throws if the program does not serve in time
   */
  static async start(command: Command, known?: URL): Promise<Host> {
    return known === undefined ? Host.#hear(command) : Host.#await(command, known);
  }

  static async #hear({ file, args, env }: Command): Promise<Host> {
    const child = spawn(file, args, { stdio: ["ignore", "ignore", "pipe"], env });
    const { pid, stderr } = child;
    const timer = setTimeout(() => void child.kill("SIGKILL"), START_LIMIT);
    try {
      let said = "";
      for await (const chunk of stderr.iterator({ destroyOnReturn: false })) {
        said += String(chunk);
        const [url] = /http:\S+\/mcp/.exec(said) ?? [];
        if (url === undefined || pid === undefined) continue;
        // Discard all further output, so that it does not fill the pipe.
        stderr.resume();
        return new Host(child, new URL(url), pid);
      }
      throw new Error(`${file} does not serve: ${said.slice(-300)}`);
    } finally {
      clearTimeout(timer);
    }
  }

  static async #await({ file, args, env }: Command, url: URL): Promise<Host> {
    const child = spawn(file, args, { stdio: "ignore", env });
    const deadline = performance.now() + START_LIMIT;
    for (;;) {
      const isOver = child.exitCode !== null || performance.now() > deadline;
      if (isOver || child.pid === undefined) throw new Error(`${file} does not serve`);
      try {
        (await HttpConnection.open(url)).close();
        return new Host(child, url, child.pid);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, START_PAUSE));
      }
    }
  }

  async end(): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    if (exitCode !== null || signalCode !== null) return;
    const exit = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => void this.#child.kill("SIGKILL"), END_LIMIT);
    await exit;
    clearTimeout(timer);
  }
}
