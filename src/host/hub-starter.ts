import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { abortable, lookFor } from "../base/clock.ts";
import { writePrivate } from "../base/private-files.ts";
import { ownCommand } from "../base/runtime.ts";
import { findRunningHubs } from "../control/running-hubs.ts";
import { tryPort } from "./listen-error.ts";
import { loadManifest } from "../manifest/load.ts";
import type { OperationContext } from "../operations/context.ts";
import { loadOptions } from "../operations/load-manifest.ts";
import { manifestToEdit } from "../operations/manifest-file.ts";
import { PARENT_VARIABLE } from "../process/parent-process.ts";
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
  readonly #context: OperationContext;
  readonly #children = new Set<StartedProcess>();
  readonly #closed = new AbortController();
  #start: Promise<void> | undefined;

  constructor(context: OperationContext) {
    this.#context = context;
  }

  /**
   * Starts a hub with the manifests of the user; without one, makes one that has no servers. Settles when it can be
   * reached. Several calls at the same time start one hub.
   * @throws {HubError} usage if it ends again; timeout if it cannot be reached in time
   */
  start(): Promise<void> {
    this.#start ??= this.#startOne().finally(() => {
      this.#start = undefined;
    });
    return this.#start;
  }

  async #startOne(): Promise<void> {
    await makeManifest(this.#context);
    const isFree = (await tryPort("127.0.0.1", PORT)) === undefined;
    const ended = await this.#startAt(isFree ? PORT : 0);
    if (ended === undefined) return;
    // Another process may have taken the port since it was tried, if only to try it, too.
    const reason = isFree ? await this.#startAt(0) : ended;
    if (reason !== undefined) throw new HubError("usage", `The hub has ended again:\n${reason}`);
  }

  /** @returns the last lines of its log if it has ended, undefined if it can be reached */
  async #startAt(port: number): Promise<string | undefined> {
    const [file, ...firstArgs] = ownCommand();
    const { env, cwd } = this.#context;
    const child = await startProcess({
      file,
      args: [...firstArgs, "serve", "--http", String(port), "--token", "auto"],
      env: {
        ...Object.fromEntries(
          Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
        ),
        // A dashboard that is killed cannot end the hub.
        [PARENT_VARIABLE]: String(process.pid),
      },
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
    const find = async (): Promise<true | undefined> =>
      (await findRunningHubs(this.#context)).some(({ pid }) => pid === child.pid) || undefined;
    const found = await lookFor(find, {
      limit: START_LIMIT,
      interval: CHECK_INTERVAL,
      signal: this.#closed.signal,
      hasEnded: () => hasEnded,
    });
    if (found) return undefined;
    if (hasEnded) return output.trim().split("\n").slice(-4).join("\n");
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

/** Writes a manifest without servers for the user, if no manifest is found: a hub does not start without one. */
async function makeManifest(context: OperationContext): Promise<void> {
  const choice = { config: [] };
  const loaded = await loadManifest(loadOptions(choice, context));
  if (loaded.ok || loaded.files.length > 0) return;
  const file = await manifestToEdit(undefined, context);
  await mkdir(dirname(file), { recursive: true });
  const text = `# The MCP servers of toolmux. To add one: toolmux add, or the page.\n`;
  await writePrivate(file, utf8(text)).catch((error: unknown) => {
    // Somebody else has made it in the meantime.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  });
}
