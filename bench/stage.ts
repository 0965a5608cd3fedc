import { execFile, spawnSync } from "node:child_process";
import {
  accessSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { FLAGS } from "../scripts/target.ts";
import type { Era } from "../src/protocol/modern.ts";
import type { Entrant } from "./contest.ts";
import type { Command } from "./peer.ts";

/** The programs between client and server: none, a byte pump, the hub, or a relay that is built with the MCP SDK. */
export const RELAYS = ["direct", "pump", "toolmux", "sdk"] as const;
export type Relay = (typeof RELAYS)[number];

/**
 * The form of an echo server's answers: the id comes first (`head`), or last (`tail`), or the spacing is such that
 * the answer has to be parsed (`spaced`).
 */
export const SHAPES = ["head", "tail", "spaced"] as const;
export type Shape = (typeof SHAPES)[number];

/** The settings of an echo server. */
export interface EchoOptions {
  /** `head` if absent. */
  readonly shape?: Shape;
  /** Number of tools that the server lists; one if absent. */
  readonly tools?: number;
  /** Time that the server sleeps before it reads its input, in ms. */
  readonly delay?: number;
  /** Time that the server works at each call, one after the other, in ms; none if absent. */
  readonly work?: number;
  /** The protocol era of the server, which is also written to the hub's manifest; if absent, the hub detects it. */
  readonly era?: Era;
  /** A folder. If it contains a file with the name of a server, this server reads requests, but never answers. */
  readonly mutes?: string;
}

/** The settings of a hub other than its servers. */
interface HubSetup {
  /** The plugins in the hub's manifest. */
  readonly plugins?: readonly object[];
  /** The tables `hub` and `telemetry` of the manifest. */
  readonly hub?: object;
  readonly telemetry?: object;
  /** Keys that are added to each server's entry in the manifest. */
  readonly server?: object;
}

/** A hub, the names of the servers behind it, and the path of its manifest. */
export interface Hub extends Entrant {
  readonly servers: readonly string[];
  readonly manifest: string;
}

interface Programs {
  readonly echo: string;
  /** The language of the echo server. The server in JavaScript needs 20 times as much memory as the one in C. */
  readonly language: "C" | "JavaScript";
  readonly pump: string;
  readonly sdk: string;
  readonly hello: string;
}

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PEERS = fileURLToPath(new URL("peers/", import.meta.url));
/** The hub's call timeout, in ms. It is short, so that a lost call is noticed soon. */
const CALL_TIMEOUT = 10_000;
/** How long a shared hub outlives its last client: longer than the pause between two starts of a client. */
const SHARED_LINGER = "3s";

/** Makes the commands that start the programs, so that the user's own configuration has no effect on them. */
export class Stage {
  readonly programs: Programs;
  /** The environment of all programs. */
  readonly env: Readonly<Record<string, string>>;
  readonly #toolmux: string;
  readonly #folder: string;
  #hubs = 0;

  private constructor(programs: Programs, toolmux: string, folder: string) {
    accessSync(toolmux, constants.X_OK);
    this.programs = programs;
    this.#toolmux = toolmux;
    this.#folder = folder;
    this.env = { PATH: process.env["PATH"] ?? "", HOME: folder };
  }

  /**
   * Compiles the programs, except toolmux: that is what TOOLMUX_EXECUTABLE names, or dist/toolmux.
   * @param folder the folder for all files; also the home folder of the programs
   * @throws if one does not compile, or toolmux has not been built since its sources were changed
   */
  static async build(folder: string): Promise<Stage> {
    const named = process.env["TOOLMUX_EXECUTABLE"];
    const toolmux = named ?? join(ROOT, "dist/toolmux");
    if (named === undefined && statSync(toolmux).mtimeMs < newest(join(ROOT, "src")))
      throw new Error("dist/toolmux is older than its sources: run `npm run build`");
    const [pump, sdk, hello, echo] = await Promise.all([
      compile("pump", folder),
      compile("sdk", folder),
      compile("hello", folder),
      buildEcho(folder),
    ]);
    return new Stage({ ...echo, pump, sdk, hello }, toolmux, folder);
  }

  /** A stage with another build of toolmux. @throws if there is no such executable */
  with(toolmux: string): Stage {
    return new Stage(this.programs, toolmux, this.makeFolder("other"));
  }

  /** One echo server behind a program, called over stdio. */
  relay(relay: Relay, options: EchoOptions = {}): Entrant {
    if (relay === "toolmux") return this.hub(1, options);
    const server = this.server(options);
    const { file, args } = server;
    if (relay === "direct") return { peer: server, tools: ["echo"] };
    const words = [...(relay === "sdk" ? ["stdio"] : []), file, ...args];
    return { peer: this.command(this.programs[relay], words), tools: ["echo"] };
  }

  /** One echo server behind a program that serves over HTTP. */
  overHttp(relay: "toolmux" | "sdk", options: EchoOptions = {}): Entrant {
    const transport = "http";
    if (relay === "toolmux")
      return { ...this.hub(1, options, {}, ["--http", "127.0.0.1:0"]), transport };
    const { file, args } = this.server(options);
    const peer = this.command(this.programs.sdk, ["http", file, ...args]);
    return { peer, tools: ["echo"], transport };
  }

  /** Several echo servers, which are called in turn, behind a hub that shares no state with other hubs. */
  hub(
    count: number,
    options: EchoOptions = {},
    { server, ...setup }: HubSetup = {},
    more: readonly string[] = [],
    verb = "serve",
  ): Hub {
    const { era, mutes } = options;
    const { file: command, args } = this.server(options);
    const names = Array.from({ length: count }, (_, at) => `s${String(at).padStart(3, "0")}`);
    const servers = names.map((name) => {
      const words = mutes === undefined ? args : [...args, join(mutes, name)];
      return [name, { command, args: words, ...(era !== undefined && { era }), ...server }];
    });
    const content = { servers: Object.fromEntries(servers) as object, ...setup };
    const [first = "", ...others] = names.map((name) => `${name}__echo`);
    const tools = [first, ...others] as const;
    return { ...this.serving(content, more, verb), tools: [...tools], servers: names };
  }

  /** A hub with a manifest that has this content, which shares no state with other hubs. */
  serving(
    content: object,
    more: readonly string[] = [],
    verb = "serve",
  ): Pick<Hub, "peer" | "manifest"> {
    const folder = this.makeFolder(`hub${++this.#hubs}`);
    const manifest = join(folder, "toolmux.json");
    writeFileSync(
      manifest,
      JSON.stringify({ defaults: { callTimeout: CALL_TIMEOUT }, ...content }),
    );
    const serve = this.command(this.#toolmux, [verb, "--config", manifest, ...more]);
    const peer = { ...serve, env: { ...serve.env, XDG_STATE_HOME: join(folder, "state") } };
    return { peer, manifest };
  }

  /**
   * One echo server behind a shared hub, called through a process that is attached to it. The hub leads a process group of
   * its own, and ends soon after its last client.
   */
  attached(): Hub {
    return this.hub(1, {}, { hub: { shared: true, linger: SHARED_LINGER } }, [], "attach");
  }

  /** The command that starts the echo server alone. */
  server({ shape = "head", tools = 1, delay = 0, era, work = 0 }: EchoOptions = {}): Command {
    const form = era === "modern" ? era : shape;
    return this.command(this.programs.echo, [
      form,
      String(tools),
      String(delay),
      // No folder of servers that never answer.
      ...(work > 0 ? ["", String(work)] : []),
    ]);
  }

  /** A program that only prints a line: the baseline for the start of programs on this runtime. */
  hello(): Command {
    return this.command(this.programs.hello, []);
  }

  command(file: string, args: readonly string[]): Command {
    return { file, args, env: this.env };
  }

  /** Creates a folder in the benchmark's folder. */
  makeFolder(name: string): string {
    const folder = join(this.#folder, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }
}

/** Builds the echo server, from C if there is a compiler: it must not be slower than the measured programs. */
export async function buildEcho(folder: string): Promise<Pick<Programs, "echo" | "language">> {
  const echo = join(folder, "echo");
  const { status } = spawnSync("cc", ["-O2", "-o", echo, join(PEERS, "echo.c")]);
  if (status === 0) return { echo, language: "C" };
  return { echo: await compile("echo", folder), language: "JavaScript" };
}

async function compile(name: string, folder: string): Promise<string> {
  const file = join(folder, name);
  const args = ["build", ...FLAGS, join(PEERS, `${name}.ts`), "--outfile", file];
  await promisify(execFile)(process.execPath, args, { cwd: folder });
  return file;
}

function newest(folder: string): number {
  const files = readdirSync(folder, { encoding: "utf8", recursive: true });
  return Math.max(...files.map((file) => statSync(join(folder, file)).mtimeMs));
}

/** Gives `run` a folder for all files. Calls `stop` and removes the folder afterwards, and when a signal ends this process. */
export async function withFolder<Value>(
  stop: () => void,
  run: (folder: string) => Promise<Value>,
): Promise<Value> {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  // All programs create their temporary files in this folder, so that the files are removed even if one is killed.
  process.env["TMPDIR"] = folder;
  const clean = (): void => {
    stop();
    rmSync(folder, { recursive: true, force: true });
  };
  const leave = (): void => {
    clean();
    process.exit(130);
  };
  process.on("SIGINT", leave).on("SIGTERM", leave).on("SIGHUP", leave);
  try {
    return await run(folder);
  } finally {
    clean();
  }
}

/** Runs a program. Prints its usage and exits with 2 if its arguments are wrong, which is a TypeError. */
export async function runMain(main: () => Promise<void>, usage: string): Promise<void> {
  try {
    await main();
  } catch (error) {
    console.error(error instanceof TypeError ? `${error.message}\n\n${usage}` : error);
    process.exitCode = error instanceof TypeError ? 2 : 1;
  }
}
