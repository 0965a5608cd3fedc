import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { buildEcho } from "../../bench/stage.ts";
import { answerText } from "../../bench/answer.ts";
import { findRunningHubs } from "../../src/control/running-hubs.ts";
import type { FleetDocument } from "../../src/control/schemas.ts";
import { type NatsServer, startNats } from "../harness/nats.ts";
import { Faults } from "./faults.ts";
import { carriersOf } from "./processes.ts";
import { kill, surroundings } from "./soak.ts";
import { type Message, Wire } from "./wire.ts";

export interface FleetSoakOptions {
  readonly executable: string;
  /** Number of servers on each machine. */
  readonly servers: number;
  readonly calls: number;
  /** Number of calls that are open at a time. With more of them, a call costs all processes less. */
  readonly flight: number;
  /** Whether machines and NATS also die and stand still while calls are open. */
  readonly hasOutages: boolean;
  print(line: string): void;
}

export interface FleetSoakReport {
  readonly answered: number;
  /** Calls whose machine was killed, and that were told so. */
  readonly lost: number;
  readonly unanswered: number;
  /** Calls per second, and the longest time of an answered call in ms. */
  readonly rate: number;
  readonly slowest: number;
  /** How long after each outage the last of the calls that were open was told, in ms. */
  readonly told: Readonly<Record<string, number>>;
  /** The first of what was found to be wrong, and how much in all. */
  readonly faults: readonly string[];
  readonly faultCount: number;
}

const MACHINES = ["h1", "h2", "h3"] as const;
type Machine = (typeof MACHINES)[number];
/** Number of calls that are open at each machine when it dies or stands still. */
const OPEN = 30;
/** Times within which all calls must be told of an outage, in ms. */
const TOLD = { kill: 1500, freeze: 4500, nats: 8000 } as const;
/** How long NATS stands still, in ms. */
const NATS_FREEZE = 5000;
/** Keys of calls have eight digits, as the server wants them. */
const FIRST_KEY = 10_000_000;
const LIMIT = 60_000;
const PAUSE = 20;

/**
 * Three machines that export the same servers over NATS, and a hub that calls them, while machines are killed and
 * started again.
 */
export async function soakFleet(options: FleetSoakOptions): Promise<FleetSoakReport> {
  const folder = mkdtempSync(join(tmpdir(), "toolmux-soak-"));
  const nats = await startNats(join(folder, "nats"));
  try {
    const { echo, language } = await buildEcho(folder);
    options.print(`servers in ${language}`);
    const soak = new FleetSoak(options, folder, nats, echo);
    return await soak.run();
  } finally {
    for (const pid of carriersOf(folder)) kill(pid);
    nats.thaw();
    await nats.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

class FleetSoak {
  readonly #options: FleetSoakOptions;
  readonly #folder: string;
  readonly #nats: NatsServer;
  readonly #env: Readonly<Record<string, string>>;
  readonly #faults: Faults;
  readonly #machines = new Map<Machine, Wire>();
  readonly #ended = new Map<Wire, Promise<void>>();
  readonly #open = new Map<number, (message: Message) => void>();
  readonly #told: Record<string, number> = {};
  readonly #names: readonly string[];
  readonly #client: Wire;
  #next = 0;
  #answered = 0;
  #lost = 0;
  #slowest = 0;

  constructor(options: FleetSoakOptions, folder: string, nats: NatsServer, echo: string) {
    this.#options = options;
    this.#folder = folder;
    this.#nats = nats;
    this.#env = surroundings(folder);
    this.#faults = new Faults((text) => options.print(`FAULT at ${text}`));
    this.#names = Array.from({ length: options.servers }, (_, at) => `s${at}`);
    const table = `[servers.%]\ncommand = ${JSON.stringify(echo)}\nargs = ["head", "3", "0"]\n`;
    for (const machine of MACHINES) {
      this.#write(machine, 'export = ["*"]', table);
      this.#start(machine);
    }
    this.#write("client", "", '[servers.%]\nfleet = "%"\nspread = "call"\n');
    this.#client = this.#spawn("client", []);
  }

  async run(): Promise<FleetSoakReport> {
    await this.#ask("initialize", {
      protocolVersion: "2025-11-25",
      capabilities: {},
      clientInfo: { name: "soak", version: "1" },
    });
    this.#client.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    await this.#until("all machines", () => this.#areThere(MACHINES));
    await this.#until("all tools", async () => {
      const { result } = await this.#ask("tools/list", {});
      return (result?.tools ?? []).length >= 3 * this.#names.length;
    });
    const began = performance.now();
    const { calls, hasOutages } = this.#options;
    await this.#callWithKills(calls);
    const rate = (1000 * calls) / (performance.now() - began);
    if (hasOutages) await this.#outages();
    const unanswered = this.#open.size;
    if (unanswered > 0) this.#faults.add(`${unanswered} calls were never answered`);
    this.#client.end();
    for (const machine of this.#machines.values()) process.kill(machine.pid, "SIGTERM");
    await Promise.race([Promise.all(this.#ended.values()), pause(LIMIT / 2)]);
    const left = carriersOf(this.#folder).length;
    if (left > 0) this.#faults.add(`${left} processes were left behind`);
    return {
      answered: this.#answered,
      lost: this.#lost,
      unanswered,
      rate,
      slowest: this.#slowest,
      told: this.#told,
      faults: this.#faults.texts,
      faultCount: this.#faults.count,
    };
  }

  /** Makes calls, so many at a time. After each third of them a machine is killed and started again. */
  async #callWithKills(calls: number): Promise<void> {
    const { flight } = this.#options;
    const kills: Promise<void>[] = [];
    const victims: Machine[] = ["h1", "h2"];
    let begun = 0;
    const worker = async (): Promise<void> => {
      while (begun < calls) {
        const at = ++begun;
        if (at % Math.ceil(calls / 3) === 0) {
          const victim = victims.shift();
          if (victim !== undefined) kills.push(this.#replace(victim));
        }
        if (at % Math.ceil(calls / 10) === 0)
          this.#options.print(`${at} calls: ${this.#answered} answered, ${this.#lost} lost`);
        await this.#call(at);
      }
    };
    const work = Promise.all(Array.from({ length: flight }, worker));
    await this.#finish("the calls", work, calls);
    await this.#finish("the machines that were started again", Promise.all(kills), 0);
    if (this.#lost > 2 * flight) this.#faults.add(`${this.#lost} calls were lost by two kills`);
  }

  async #replace(machine: Machine): Promise<void> {
    await this.#kill(machine);
    this.#start(machine);
    await this.#until(`${machine} again`, () => this.#areThere(MACHINES));
  }

  /** Calls a server, and checks the answer. */
  async #call(number: number): Promise<void> {
    const server = this.#names[number % this.#names.length] ?? "";
    const key = FIRST_KEY + number;
    const began = performance.now();
    const message = await this.#tool(`${server}__echo`, key);
    if (textOf(message) === answerText(key, 1)) {
      this.#answered++;
      this.#slowest = Math.max(this.#slowest, performance.now() - began);
    } else if (this.#isLoss(message, "left the fleet")) this.#lost++;
    else this.#faults.add(`call ${number}: ${JSON.stringify(message)}`);
  }

  /** Whether an answer tells a loss as it should be told. */
  #isLoss(message: Message, words: string): boolean {
    const text = JSON.stringify(message.error ?? message.result);
    return text.includes("answerLost") && text.includes(words) && text.includes("may have run");
  }

  async #outages(): Promise<void> {
    // Calls that never end, as many at each machine.
    const parked = await this.#park();
    await this.#loss(
      "kill",
      parked.h1,
      '\\"h1\\" that worked at it left the fleet',
      TOLD.kill,
      () => this.#kill("h1"),
    );
    await this.#loss("freeze", parked.h2, "left the fleet: it does not answer", TOLD.freeze, () =>
      this.#signal("h2", "SIGSTOP"),
    );
    this.#signal("h2", "SIGCONT");
    this.#start("h1");
    await this.#until("all machines again", () => this.#areThere(MACHINES));
    await this.#loss("NATS frozen", parked.h3, "connection to NATS", TOLD.nats, async () => {
      this.#nats.freeze();
      void pause(NATS_FREEZE).then(() => this.#nats.thaw());
    });
    await pause(NATS_FREEZE);
    await this.#recover("NATS went on");
    await this.#nats.restart();
    await this.#recover("NATS was restarted");
  }

  /** Opens calls at each machine, by those that are open there already. */
  async #park(): Promise<Readonly<Record<Machine, readonly Promise<Message>[]>>> {
    const parked: Record<Machine, Promise<Message>[]> = { h1: [], h2: [], h3: [] };
    const countsOf = async (): Promise<Record<string, number>> =>
      Object.fromEntries(
        (await this.#fleet())?.machines.map(({ name, open }) => [name, open]) ?? [],
      );
    for (let number = 0; number < MACHINES.length * OPEN; number++) {
      const before = await countsOf();
      const answer = this.#tool("s0__park", FIRST_KEY + number);
      await this.#until("an open call", async () => {
        const after = await countsOf();
        const machine = MACHINES.find((name) => (after[name] ?? 0) > (before[name] ?? 0));
        if (machine !== undefined) parked[machine].push(answer);
        return machine !== undefined;
      });
    }
    return parked;
  }

  /** Lets something happen, and waits until all these calls are told. */
  async #loss(
    name: string,
    calls: readonly Promise<Message>[],
    words: string,
    limit: number,
    happen: () => Promise<void> | void,
  ): Promise<void> {
    if (calls.length < OPEN) this.#faults.add(`only ${calls.length} calls were open: ${name}`);
    const began = performance.now();
    await happen();
    const answers = await this.#finish(name, Promise.all(calls), calls.length);
    const time = performance.now() - began;
    this.#told[name] = time;
    if (time > limit) this.#faults.add(`${name}: told after ${time.toFixed(0)} ms`);
    for (const message of answers ?? [])
      if (!this.#isLoss(message, words)) this.#faults.add(`${name}: ${JSON.stringify(message)}`);
    this.#options.print(`${name}: ${calls.length} calls told within ${time.toFixed(0)} ms`);
  }

  /** Waits until all machines answer again. */
  async #recover(name: string): Promise<void> {
    await this.#until(`all machines after ${name}`, () => this.#areThere(MACHINES));
    await this.#until(`a call after ${name}`, async () => {
      const message = await this.#tool("s0__echo", FIRST_KEY);
      return textOf(message) === answerText(FIRST_KEY, 1);
    });
  }

  async #finish<T>(name: string, work: Promise<T>, calls: number): Promise<T | undefined> {
    // A thousandth of a second for each call is more than the slowest machine needs.
    const value = await Promise.race([work, pause(LIMIT + calls, undefined, { ref: false })]);
    if (value === undefined) this.#faults.add(`${name}: not ended`);
    return value;
  }

  async #until(name: string, test: () => Promise<boolean>): Promise<void> {
    const until = performance.now() + LIMIT;
    while (!(await test())) {
      if (performance.now() > until) throw new Error(`waited for ${name}: ${this.#client.stderr}`);
      await pause(PAUSE);
    }
  }

  async #areThere(machines: readonly string[]): Promise<boolean> {
    const fleet = await this.#fleet();
    return machines.every((machine) => fleet?.machines.some(({ name }) => name === machine));
  }

  /** The fleet as the calling hub describes it; undefined if the hub cannot be asked yet. */
  async #fleet(): Promise<FleetDocument | undefined> {
    const hubs = await findRunningHubs({ env: this.#env, platform: process.platform });
    const socketPath = hubs.find(({ pid }) => pid === this.#client.pid)?.socket;
    if (socketPath === undefined) return undefined;
    return new Promise((resolve, reject) => {
      const outgoing = request({ socketPath, path: "/v1/fleet" }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (part: string) => (text += part));
        response.on("end", () => resolve(JSON.parse(text) as FleetDocument));
      });
      outgoing.on("error", reject).end();
    });
  }

  #tool(name: string, key: number): Promise<Message> {
    return this.#ask("tools/call", { name, arguments: { key: String(key), lines: 1 } });
  }

  #ask(method: string, params: object): Promise<Message> {
    const id = ++this.#next;
    return new Promise((resolve) => {
      this.#open.set(id, resolve);
      this.#client.send({ jsonrpc: "2.0", id, method, params });
    });
  }

  readonly #onMessage = (message: Message): void => {
    if (message.method !== undefined) return;
    const id = Number(message.id);
    const end = this.#open.get(id);
    this.#open.delete(id);
    if (end === undefined) this.#faults.add(`answered twice, or never asked: ${id}`);
    else end(message);
  };

  #write(name: string, fleet: string, server: string): void {
    const servers = this.#names.map((one) => server.replaceAll("%", one)).join("\n");
    const text = `[fleet]\nurl = "${this.#nats.url}"\nname = "${name}"\n${fleet}\n\n[defaults]\ncallTimeout = "10m"\n\n${servers}`;
    mkdirSync(join(this.#folder, name), { recursive: true });
    writeFileSync(join(this.#folder, `${name}.toml`), text);
  }

  #start(machine: Machine): void {
    this.#machines.set(machine, this.#spawn(machine, ["--http", "127.0.0.1:0"]));
  }

  #spawn(name: string, more: readonly string[]): Wire {
    const { promise, resolve } = Promise.withResolvers<void>();
    const args = ["serve", "--config", join(this.#folder, `${name}.toml`), ...more];
    const wire = new Wire(
      this.#options.executable,
      args,
      { cwd: this.#folder, env: this.#env },
      {
        message: this.#onMessage,
        stray: (text) => this.#faults.add(`stdout of ${name}: ${text}`),
        ended: () => resolve(),
      },
    );
    this.#ended.set(wire, promise);
    return wire;
  }

  async #kill(machine: Machine): Promise<void> {
    const wire = this.#machines.get(machine);
    if (wire === undefined) return;
    wire.kill();
    await this.#ended.get(wire);
  }

  #signal(machine: Machine, signal: NodeJS.Signals): void {
    const wire = this.#machines.get(machine);
    if (wire !== undefined) process.kill(wire.pid, signal);
  }
}

function textOf({ result }: Message): string | undefined {
  return result?.content?.[0]?.text;
}
