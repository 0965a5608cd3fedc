import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Era } from "../src/protocol/modern.ts";
import type { Programs } from "./build.ts";
import type { Command } from "./peer.ts";

/** The programs between client and server: none, a byte pump, the hub, or a relay that is built with the MCP SDK. */
export const CONTESTANTS = ["direct", "pump", "toolmux", "sdk"] as const;
export type Contestant = (typeof CONTESTANTS)[number];

/**
 * The form of an echo server's answers: the id comes first (`head`), or last (`tail`), or the spacing is such that
 * the answer has to be parsed (`spaced`).
 */
export const SHAPES = ["head", "tail", "spaced"] as const;
export type Shape = (typeof SHAPES)[number];

/** The settings of an echo server. */
export interface EchoOptions {
  readonly shape: Shape;
  /** Number of tools that the server lists. */
  readonly tools: number;
  /** Time that the server sleeps before it reads its input, in ms. */
  readonly delay: number;
  /**
   * The protocol era of the server. If set, it is also written to the hub's manifest; if absent, the hub has to detect
   * the era.
   */
  readonly era?: Era;
  /**
   * A folder of marker files. If it contains a file with the name of a server, this server reads requests, but never
   * answers them.
   */
  readonly mutes?: string;
}

/** The hub's call timeout, in ms. It is short, so that a lost call is noticed soon. */
const CALL_TIMEOUT = 10_000;
const ANYWHERE = ["--http", "127.0.0.1:0"];

/** Makes the commands that start the programs, so that the user's own configuration has no effect on them. */
export class Stage {
  readonly programs: Programs;
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  #hubs = 0;

  /** @param folder the folder for manifests and all other files; also the home folder of the programs */
  constructor(programs: Programs, folder: string) {
    this.programs = programs;
    this.#folder = folder;
    this.#env = { PATH: process.env["PATH"] ?? "", HOME: folder };
  }

  /** One echo server behind a contestant. @returns undefined if the contestant has not been built */
  relay(contestant: Contestant, options: EchoOptions): Scene | undefined {
    const server = this.#echo(options);
    switch (contestant) {
      case "direct":
        return { peer: server, tool: "echo" };
      case "pump":
      case "sdk": {
        const args = [server.file, ...server.args];
        return { peer: this.#command(this.programs[contestant], args), tool: "echo" };
      }
      case "toolmux":
        return this.hub(1, options);
    }
  }

  /**
   * Several echo servers behind a hub that shares no state with other hubs. @returns undefined if it has not been
   * built
   */
  hub(count: number, options: EchoOptions, setup: HubSetup = {}): HubScene | undefined {
    const { file: command, args } = this.#echo(options);
    const known = options.era === undefined ? {} : { era: options.era };
    const names = Array.from({ length: count }, (_, at) => `s${String(at).padStart(3, "0")}`);
    const argsOf = (name: string) =>
      options.mutes === undefined ? args : [...args, join(options.mutes, name)];
    const servers = Object.fromEntries(
      names.map((name) => [name, { command, args: argsOf(name), ...known, ...setup.server }]),
    );
    const manifest = { servers, plugins: setup.plugins ?? [], hub: setup.hub ?? {} };
    const peer = this.#serve(manifest, setup.args);
    const file = peer?.args[2] ?? "";
    return peer && { peer, tool: `${names[count >> 1] ?? ""}__echo`, servers: names, file };
  }

  /** One echo server behind a program that serves over HTTP. @returns undefined if the program has not been built */
  overHttp(contestant: "toolmux" | "sdk", options: EchoOptions): Scene | undefined {
    const { file, args } = this.#echo(options);
    if (contestant === "sdk") {
      return { peer: this.#command(this.programs.sdkHttp, [file, ...args]), tool: "echo" };
    }
    const servers = { echo: { command: file, args } };
    const peer = this.#serve({ servers }, ANYWHERE);
    return peer && { peer, tool: "echo__echo" };
  }

  /** Creates a folder in the benchmark's folder. */
  makeFolder(name: string): string {
    const folder = join(this.#folder, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  /** A program that only prints a line: the baseline for the start of programs on this runtime. */
  hello(): Command {
    return this.#command(this.programs.hello, []);
  }

  /** The command that starts the echo server alone. */
  server(options: EchoOptions): Command {
    return this.#echo(options);
  }

  /** The command that starts the given executable. */
  program(file: string, args: readonly string[]): Command {
    return this.#command(file, args);
  }

  /** A hub with the given manifest. */
  #serve(manifest: object, more: readonly string[] = []): Command | undefined {
    const { toolmux } = this.programs;
    if (toolmux === undefined) return undefined;
    const folder = this.makeFolder(`hub${++this.#hubs}`);
    const path = join(folder, "toolmux.json");
    const defaults = { callTimeout: CALL_TIMEOUT };
    writeFileSync(path, JSON.stringify({ defaults, ...manifest }));
    const { file, args, env } = this.#command(toolmux, ["serve", "--config", path, ...more]);
    return { file, args, env: { ...env, XDG_STATE_HOME: join(folder, "state") } };
  }

  #echo({ shape, tools, delay, era }: EchoOptions): Command {
    const how = era === "modern" ? era : shape;
    return this.#command(this.programs.echo, [how, String(tools), String(delay)]);
  }

  #command(file: string, args: readonly string[]): Command {
    return { file, args, env: this.#env };
  }
}

/** A program to start, and the name of its tool that is called. */
export interface Scene {
  readonly peer: Command;
  readonly tool: string;
}

/** A hub, the names of the servers behind it, and the path of its manifest. */
export interface HubScene extends Scene {
  readonly servers: readonly string[];
  readonly file: string;
}

/** The settings of a hub other than its servers. */
export interface HubSetup {
  /** The plugins in the hub's manifest. */
  readonly plugins?: readonly object[];
  /** The table `hub` of the manifest. */
  readonly hub?: object;
  /** Keys that are added to each server's entry in the manifest. */
  readonly server?: object;
  /** Additional command-line arguments. */
  readonly args?: readonly string[];
}
