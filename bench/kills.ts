import { Buffer } from "node:buffer";
import process from "node:process";
import type { KillsJob, KillsResult, Weight } from "./job.ts";
import { Peer } from "./peer.ts";
import { weigh } from "./usage.ts";

/** Calls of one server. */
interface Lane {
  readonly server: string;
  readonly tool: string;
  /** Who answered last; undefined: nobody since it was killed. */
  pid: number | undefined;
  killed: number | undefined;
}

/** What came back, as far as it is looked at. */
interface Answer {
  readonly id?: unknown;
  readonly method?: string;
  readonly result?: {
    readonly content?: readonly { readonly text?: string }[];
    readonly _meta?: { readonly "toolmux/error"?: string };
  };
  readonly error?: { readonly data?: { readonly code?: string; readonly server?: string } };
}

/** What may be said to a call whose server was killed: at work, or at its start. */
const CLEAR = ["connectionLost", "handshakeFailed", "spawnFailed"];
/** Faults of which the text is kept. */
const EXAMPLES = 5;
/** Between two looks at memory and descriptors while the hub rests, in ms. */
const LOOK_PAUSE = 100;

/** Kills the servers of a hub in turn while calls to all of them are in flight, each as soon as it has answered again. */
export async function kill(job: KillsJob): Promise<KillsResult> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => job.servers.every((server) => names.includes(toolOf(server))));
  const siege = new Siege(peer, job);
  siege.lay(job.warmUp);
  const before = weighAtRest(peer, job.rest);
  siege.forget();
  const began = performance.now();
  siege.lay(job.kills);
  const seconds = (performance.now() - began) / 1000;
  const after = weighAtRest(peer, job.rest);
  await peer.end();
  return { ...siege.result, kills: job.kills, seconds, rest: job.rest, before, after };
}

class Siege {
  readonly #peer: Peer;
  readonly #width: number;
  readonly #lanes: readonly Lane[];
  /** The calls in flight, by their ids. */
  readonly #calls = new Map<number, Lane>();
  /** Ids are keys as well, which have eight digits; those of `Peer.request` are shorter. */
  #id = 10_000_000;
  readonly #result = { calls: 0, errors: 0, faults: 0, examples: [] as string[] };

  constructor(peer: Peer, { servers, flight }: KillsJob) {
    this.#peer = peer;
    this.#width = flight;
    this.#lanes = servers.map((server) => ({
      server,
      tool: toolOf(server),
      pid: undefined,
      killed: undefined,
    }));
  }

  get result(): Pick<KillsResult, "calls" | "errors" | "faults" | "examples"> {
    return this.#result;
  }

  /** What was counted so far was warming up; faults stay. */
  forget(): void {
    Object.assign(this.#result, { calls: 0, errors: 0 });
  }

  /** Kills that often, and returns when every server is there again and every call answered. */
  lay(kills: number): void {
    for (let at = this.#calls.size; at < this.#width; at++) this.#call(this.#laneAt(at));
    for (let done = 0; done < kills;) {
      const lane = this.#take();
      if (lane !== undefined) this.#call(lane);
      if (this.#strike(this.#laneAt(done))) done++;
    }
    while (this.#calls.size > 0) this.#take();
    for (const lane of this.#lanes) {
      while (lane.pid === undefined) {
        this.#call(lane);
        while (this.#calls.size > 0) this.#take();
      }
    }
  }

  #laneAt(at: number): Lane {
    const lane = this.#lanes[at % this.#lanes.length];
    if (lane === undefined) throw new Error("there is no server to kill");
    return lane;
  }

  /** @returns false if nobody has answered since the last time. */
  #strike(lane: Lane): boolean {
    if (lane.pid === undefined) return false;
    process.kill(lane.pid, "SIGKILL");
    lane.killed = lane.pid;
    lane.pid = undefined;
    return true;
  }

  #call(lane: Lane): void {
    const id = ++this.#id;
    this.#calls.set(id, lane);
    const params = { name: lane.tool, arguments: { key: String(id) } };
    const request = { jsonrpc: "2.0", id, method: "tools/call", params };
    this.#peer.write(Buffer.from(`${JSON.stringify(request)}\n`));
  }

  /** Reads one message. @returns whose call it answers; undefined if it is no answer that was waited for. */
  #take(): Lane | undefined {
    const text = this.#peer.line().toString();
    const { id, method, result, error } = JSON.parse(text) as Answer;
    if (id === undefined && method !== undefined) return undefined;
    const lane = typeof id === "number" ? this.#calls.get(id) : undefined;
    if (typeof id !== "number" || lane === undefined) {
      this.#blame(`nobody waits for ${text}`);
      return undefined;
    }
    this.#calls.delete(id);
    this.#result.calls++;
    const [key, pid] = result?.content?.[0]?.text?.split(" ") ?? [];
    if (key === String(id) && Number(pid) > 0) {
      if (Number(pid) !== lane.killed) lane.pid = Number(pid);
    } else if (isClear(error?.data, lane) || isLostCall(result, lane)) {
      this.#result.errors++;
    } else {
      this.#blame(`no clear answer to call ${id} of ${lane.server}: ${text}`);
    }
    return lane;
  }

  #blame(text: string): void {
    this.#result.faults++;
    if (this.#result.examples.length < EXAMPLES) this.#result.examples.push(text.slice(0, 300));
  }
}

function isClear(data: { code?: string; server?: string } | undefined, { server }: Lane): boolean {
  return data?.server === server && CLEAR.includes(data.code ?? "");
}

/** A call whose server has died is answered with a result that names the server. */
function isLostCall(result: Answer["result"], { server }: Lane): boolean {
  const text = result?.content?.[0]?.text ?? "";
  return CLEAR.includes(result?._meta?.["toolmux/error"] ?? "") && text.includes(`"${server}"`);
}

function toolOf(server: string): string {
  return `${server}__pid`;
}

/**
 * The least that it holds while it has nothing to do for `rest` ms: what is just being tidied up must not count, and the
 * garbage of a busy second is collected only in quiet ones. null where that cannot be known.
 */
function weighAtRest(peer: Peer, rest: number): Weight | null {
  const looks: Weight[] = [];
  for (const end = performance.now() + rest; performance.now() < end || looks.length < 2;) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_PAUSE);
    const weight = weigh(peer.pid);
    if (weight === undefined) return null;
    looks.push(weight);
  }
  return {
    rss: Math.min(...looks.map(({ rss }) => rss)),
    descriptors: Math.min(...looks.map(({ descriptors }) => descriptors)),
  };
}
