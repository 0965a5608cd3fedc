import process from "node:process";
import { HubError } from "../base/errors.ts";
import { abortable, pause, systemClock } from "../base/clock.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { ownCommand } from "../base/runtime.ts";
import { findRunningHubs } from "../control/running-hubs.ts";
import { tryPort } from "./listen-error.ts";
import { type StartedProcess, startProcess } from "../process/started-process.ts";

/** How long a hub may take until it can be reached, in ms. */
const START_LIMIT = 15_000;
const CHECK_INTERVAL = 50;
/** How long a hub may take to end, in ms. */
const END_LIMIT = 5000;
/** The port at which the hub serves MCP over HTTP if it is free. */
const PORT = 8700;
/** Maximum length of the text of stderr that is kept, in characters. */
const MAX_STDERR = 4000;

/** Starts hubs for a dashboard; they end with it. */
export class HubStarter {
  readonly #context: SystemEnvironment;
  readonly #children = new Set<StartedProcess>();
  readonly #closed = new AbortController();
  #start: Promise<void> | undefined;

  constructor(context: SystemEnvironment) {
    this.#context = context;
  }

  /**
   * Starts a hub with the manifests of the user. Settles when it can be reached. Several calls at the same time start
   * one hub.
   * @throws {HubError} usage if it ends again; timeout if it cannot be reached in time
   */
  start(): Promise<void> {
    this.#start ??= this.#startOne().finally(() => {
      this.#start = undefined;
    });
    return this.#start;
  }

  async #startOne(): Promise<void> {
    const [file, ...firstArgs] = ownCommand();
    const { env, cwd } = this.#context;
    const port = (await tryPort("127.0.0.1", PORT)) === undefined ? PORT : 0;
    const child = await startProcess({
      file,
      args: [...firstArgs, "serve", "--http", String(port)],
      env: Object.fromEntries(
        Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
      ),
      cwd,
      isDetached: false,
      stderr: "pipe",
    });
    this.#children.add(child);
    let output = "";
    child.stderr.read(
      (chunk) => void (output = (output + new TextDecoder().decode(chunk)).slice(-MAX_STDERR)),
      () => {},
    );
    child.stdout.read(
      () => {},
      () => {},
    );
    let hasEnded = false;
    child.onExit(() => {
      hasEnded = true;
      this.#children.delete(child);
    });
    const deadline = systemClock.now() + START_LIMIT;
    while (systemClock.now() < deadline) {
      const hubs = await findRunningHubs(this.#context);
      if (hubs.some(({ pid }) => pid === child.pid)) return;
      if (hasEnded) {
        const reason = output.trim().split("\n").slice(-4).join("\n");
        throw new HubError("usage", `The hub has ended again:\n${reason}`);
      }
      await pause(systemClock, CHECK_INTERVAL, this.#closed.signal);
    }
    process.kill(child.pid, "SIGTERM");
    throw new HubError("connectTimeout", "The hub did not start in time. See: toolmux doctor");
  }

  /** Ends the hubs that were started. */
  async close(): Promise<void> {
    this.#closed.abort(new HubError("cancelled", "The dashboard has ended."));
    await Promise.all(
      [...this.#children].map(async (child) => {
        process.kill(child.pid, "SIGTERM");
        await abortable(child.exited, AbortSignal.timeout(END_LIMIT)).catch(() => {});
      }),
    );
  }
}
