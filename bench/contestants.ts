import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Era } from "../src/protocol/modern.ts";
import type { Programs } from "./build.ts";
import type { Command } from "./peer.ts";

/** What stands between the client and the server: nothing, a pump of bytes, the hub, or a relay made of the SDK. */
export const CONTESTANTS = ["direct", "pump", "toolmux", "sdk"] as const;
export type Contestant = (typeof CONTESTANTS)[number];

/** How an echo server answers: with the id first, with the id last, or so that it has to be parsed. */
export const SHAPES = ["head", "tail", "spaced"] as const;
export type Shape = (typeof SHAPES)[number];

/** The settings of an echo server. */
export interface EchoOptions {
  readonly shape: Shape;
  /** How many tools it lists. */
  readonly tools: number;
  /** ms that it sleeps before it reads. */
  readonly delay: number;
  /** In which it speaks, and what the hub is told of that; the hub finds out for itself if it is left out. */
  readonly era?: Era;
  /** A folder: whose name is that of a file in it reads, but never answers. */
  readonly mutes?: string;
}

/** A call that is lost shows soon, in ms. */
const CALL_TIMEOUT = 10_000;
const ANYWHERE = ["--http", "127.0.0.1:0"];

/** Starts programs so that nothing of the user's own configuration has a say. */
export class Stage {
  readonly programs: Programs;
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  #hubs = 0;

  /** @param folder for manifests and whatever else is written, and as a home. */
  constructor(programs: Programs, folder: string) {
    this.programs = programs;
    this.#folder = folder;
    this.#env = { PATH: process.env["PATH"] ?? "", HOME: folder };
  }

  /** One echo server behind a contestant. @returns undefined if the contestant is not there. */
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

  /** Many echo servers behind a hub that remembers nothing of another. @returns undefined if it has not been built */
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

  /** One echo server behind what serves over HTTP. @returns undefined if that is not there. */
  face(contestant: "toolmux" | "sdk", options: EchoOptions): Scene | undefined {
    const { file, args } = this.#echo(options);
    if (contestant === "sdk") {
      return { peer: this.#command(this.programs.sdkHttp, [file, ...args]), tool: "echo" };
    }
    const servers = { echo: { command: file, args } };
    const peer = this.#serve({ servers }, ANYWHERE);
    return peer && { peer, tool: "echo__echo" };
  }

  /** A folder that goes with the benchmark. */
  makeFolder(name: string): string {
    const folder = join(this.#folder, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  /** What any program of this runtime needs to start. */
  hello(): Command {
    return this.#command(this.programs.hello, []);
  }

  /** The server behind every contestant. */
  server(options: EchoOptions): Command {
    return this.#echo(options);
  }

  /** Any other program. */
  program(file: string, args: readonly string[]): Command {
    return this.#command(file, args);
  }

  /** A hub of a manifest. */
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

/** A program that is ready to be started, and the tool of it that is called. */
export interface Scene {
  readonly peer: Command;
  readonly tool: string;
}

/** A hub, the names of the servers behind it, and its manifest. */
export interface HubScene extends Scene {
  readonly servers: readonly string[];
  readonly file: string;
}

/** What a hub is told beyond its servers. */
export interface HubSetup {
  /** Entries of its manifest. */
  readonly plugins?: readonly object[];
  /** Its table `hub`. */
  readonly hub?: object;
  /** Keys that each of its servers has. */
  readonly server?: object;
  /** Further arguments. */
  readonly args?: readonly string[];
}
