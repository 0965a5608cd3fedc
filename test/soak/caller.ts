import { setTimeout as pause } from "node:timers/promises";
import type { Chance } from "./chance.ts";
import type { Editor } from "./editor.ts";
import { type Errand, type Errands, GUEST } from "./errand.ts";
import type { Faults } from "./faults.ts";
import { type Call, Ledger } from "./ledger.ts";
import { Lists } from "./lists.ts";
import type { Resident } from "./roster.ts";
import type { Message, Wire } from "./wire.ts";

export interface CallerParts {
  readonly wire: Wire;
  readonly faults: Faults;
  readonly editor: Editor;
  readonly residents: readonly Resident[];
  readonly chance: Chance;
}

interface Target {
  readonly name: string;
  readonly isCalm: boolean;
  readonly errands: Errands;
}

/** Calls in flight at most, and how many of these are always to calm servers. */
const WORKERS = { all: 20, calm: 2 };
/** What may happen to any call whose server is not calm. */
const TROUBLES = [
  "connectionLost",
  "notResponding",
  "notReading",
  "handshakeFailed",
  "connectTimeout",
  "spawnFailed",
];
/** What else may happen to calls of a server that comes, goes or changes. */
const ABSENCES = ["unknownTool", "serverStopped"];
/** A server that is replaced lets calls finish for so long, in ms. */
const DRAIN = 12_000;
/** Lines that are no request, or one that nobody can answer. The hub answers each with an error without an id, or not at all. */
const GARBAGE = [
  "What a lovely day.",
  "",
  "{",
  "null",
  "[]",
  "[1]",
  '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
  '{"jsonrpc":"2.0"}',
  '{"jsonrpc":"2.0","id":{},"method":"ping"}',
  '{"jsonrpc":"2.0","id":987654321,"result":{}}',
  '{"jsonrpc":"2.0","method":"notifications/no-such"}',
  '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":987654321}}',
  "x".repeat(1_000_000),
];
/** Between two looks whether all calls have ended, in ms. */
const PAUSE = 20;
/** A request of a method that there is not. */
const ODD: Errand = { tool: "no/such", args: {}, tellsProgress: false, right: { error: -32601 } };

/** One client: calls, cancels, lists, and now and then talks nonsense. */
export class Caller {
  readonly ledger: Ledger;
  readonly lists: Lists;
  readonly #parts: CallerParts;
  #ids = 0;
  #listId: number | string | undefined;
  /** Lines that may be answered with an error without an id. */
  #garbage = 0;
  #isLeaving = false;
  readonly #greeting: { readonly id: number | string; readonly done: Promise<void> };
  #greeted = (): void => {};

  constructor(parts: CallerParts) {
    const { faults, editor, residents, wire } = parts;
    this.#parts = parts;
    const now = (): number => performance.now();
    const allowed = (server: string, sentAt: number): readonly string[] =>
      this.#allowed(server, sentAt);
    this.ledger = new Ledger({ faults, now, allowed });
    const done = new Promise<void>((resolve) => (this.#greeted = resolve));
    this.#greeting = { id: this.#id(), done };
    this.lists = new Lists({
      faults,
      editor,
      residents,
      now,
      ask: () => {
        this.#listId = this.#id();
        wire.send({ jsonrpc: "2.0", id: this.#listId, method: "tools/list" });
      },
    });
  }

  /** Shakes hands, calls until the signal is aborted, and then waits for the answers. */
  async run(signal: AbortSignal): Promise<void> {
    const clientInfo = { name: "soak", version: "1.0.0" };
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
    const { wire, chance } = this.#parts;
    wire.send({ jsonrpc: "2.0", id: this.#greeting.id, method: "initialize", params });
    await Promise.race([this.#greeting.done, aborted(signal)]);
    if (signal.aborted) this.#parts.faults.add("there was no time for a handshake");
    wire.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    this.lists.ask();
    const workers = Array.from({ length: WORKERS.all }, (_, at) =>
      this.#work(at < WORKERS.calm, chance.fork(`worker ${at}`), signal),
    );
    await Promise.all([...workers, this.#disturb(chance.fork("nonsense"), signal)]);
    while (this.ledger.open > 0) await pause(PAUSE);
  }

  /** Makes calls whose answers nobody will read. */
  leave(): void {
    this.#isLeaving = true;
    const { chance, wire } = this.#parts;
    for (let at = 0; at < WORKERS.all; at++)
      this.#call(this.#target(false, chance), chance, () => {});
    wire.end();
  }

  message(message: Message): void {
    const { faults } = this.#parts;
    const { id, method } = message;
    if (method !== undefined) this.#notified(message);
    else if (this.#isLeaving || this.ledger.settle(message)) return;
    else if (id === this.#greeting.id) this.#greeted();
    else if (id === this.#listId) this.lists.take(message);
    else if (id === null && this.#garbage-- > 0) return;
    else faults.add(`nobody waits for ${JSON.stringify(message)}`);
  }

  #notified(message: Message): void {
    const { faults } = this.#parts;
    const { id, method } = message;
    if (id !== undefined) faults.add(`the hub asks: ${JSON.stringify(message)}`);
    else if (this.#isLeaving) return;
    else if (method === "notifications/progress") this.ledger.progress(message);
    else if (method === "notifications/tools/list_changed") this.lists.ask();
    else if (!isLog(message)) faults.add(`the hub tells: ${JSON.stringify(message)}`);
  }

  async #work(isCalm: boolean, chance: Chance, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const target = this.#target(isCalm, chance);
      const mayCancel = chance.happens(0.08);
      await new Promise<void>((resolve) => {
        const call = this.#call(target, chance, resolve);
        if (mayCancel) void this.#cancel(call, chance.between(0, 200));
      });
      await pause(chance.between(0, 20));
    }
  }

  #target(isCalm: boolean, chance: Chance): Target {
    const { residents, editor } = this.#parts;
    const guests = [...editor.guests, ...editor.former].map((name): Target => ({
      name,
      isCalm: false,
      errands: GUEST,
    }));
    const targets: readonly Target[] = [...residents, ...guests];
    return chance.pick(targets.filter((target) => target.isCalm || !isCalm));
  }

  #call(target: Target, chance: Chance, done: () => void): Call {
    const errand = chance.weigh(target.errands)(`key-${this.#ids}`, chance);
    return this.#send(target, errand, done);
  }

  #send({ name, isCalm }: Omit<Target, "errands">, errand: Errand, done: () => void): Call {
    const id = this.#id();
    const sentAt = performance.now();
    const call: Call = { id, server: name, errand, isCalm, sentAt, progress: 0, done };
    this.ledger.add(call);
    const { tool, args, tellsProgress } = errand;
    const params = {
      name: `${name}__${tool}`,
      arguments: args,
      ...(tellsProgress && { _meta: { progressToken: id } }),
    };
    const asked = errand === ODD ? { method: tool } : { method: "tools/call", params };
    this.#parts.wire.send({ jsonrpc: "2.0", id, ...asked });
    return call;
  }

  async #cancel(call: Call, delay: number): Promise<void> {
    if (delay > 0) await pause(delay);
    if (!this.ledger.has(call) || call.isOverdue) return;
    const { wire } = this.#parts;
    const ping = this.#id();
    const params = { requestId: call.id, reason: "changed my mind" };
    this.ledger.cancel(call, ping);
    wire.send({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    wire.send({ jsonrpc: "2.0", id: ping, method: "ping" });
  }

  /** Nonsense, lists that nobody needs, and pauses in which nothing is read. */
  async #disturb(chance: Chance, signal: AbortSignal): Promise<void> {
    const { wire } = this.#parts;
    while (!signal.aborted) {
      await pause(chance.between(100, 1500), undefined, { signal }).catch(() => {});
      const what = chance.weigh([
        [4, "garbage"],
        [2, "odd"],
        [1, "list"],
        [1, "deaf"],
      ] as const);
      if (what === "garbage") {
        this.#garbage++;
        wire.send(chance.pick(GARBAGE));
      } else if (what === "odd") {
        this.#send({ name: "the hub", isCalm: true }, ODD, () => {});
      } else if (what === "list") {
        this.lists.ask();
      } else {
        wire.pause();
        await pause(chance.between(0, 800));
        wire.resume();
        this.ledger.excuse();
      }
    }
  }

  #allowed(server: string, sentAt: number): readonly string[] {
    const { residents, editor } = this.#parts;
    const resident = residents.find(({ name }) => name === server);
    if (resident !== undefined) return resident.isCalm ? [] : TROUBLES;
    const possible = editor.possible(server, sentAt - DRAIN, performance.now());
    const isSure = possible.length === 1 && possible[0] !== undefined;
    return isSure ? TROUBLES : [...TROUBLES, ...ABSENCES];
  }

  /** Numbers and texts in turn. */
  #id(): number | string {
    const id = ++this.#ids;
    return id % 2 === 0 ? id : `id-${id}`;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}

/** Whether it is what the one server that logs says; its logger begins with the server's name. */
function isLog({ method, params }: Message): boolean {
  const logger = (params as { readonly logger?: unknown } | undefined)?.logger;
  return method === "notifications/message" && String(logger).startsWith("faulty");
}
