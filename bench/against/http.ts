import type { Buffer } from "node:buffer";
import { answerText } from "../answer.ts";
import { Host } from "../http/host.ts";
import { Visitor } from "../http/visitor.ts";
import { warmUp } from "../warmth.ts";
import { type Caller, excerpt, namesIn } from "./caller.ts";
import { Channel } from "./channel.ts";
import type { HttpFace, Job, Lap, Tell } from "./job.ts";
import { Kin, summarize } from "./kin.ts";

/** Keys have eight digits. */
const FIRST_KEY = 10_000_000;
/** Answers that are read in full, apart from the first: one of so many. */
const SAMPLE_EVERY = 100;
/** ms that a peer has to offer its tools, and between two looks. */
const READY_LIMIT = 15_000;
const READY_PAUSE = 50;

/**
 * Runs a job over HTTP: all of it as one client in one session, with a connection for each call in flight.
 * @throws as soon as an answer is not what was asked for; what was told until then holds.
 */
export async function runOverHttp(job: Job, face: HttpFace, tell: Tell): Promise<void> {
  const host = await Host.start(job.peer, face.url === undefined ? undefined : new URL(face.url));
  const caller = await awaitTool(face.kind, host.url, job.tool);
  const kin = new Kin(job);
  let key = FIRST_KEY;
  const nextKey = () => ++key;
  for (const lap of job.laps) {
    const tally: Tally = { latencies: [], isOver: false };
    const runs = Promise.all(
      Array.from({ length: lap.flight }, () => callOn(caller, job.tool, lap, nextKey, tally)),
    );
    // Whatever fails ends it at once.
    await warmUp(async (ms) => {
      const before = tally.latencies.length;
      const from = performance.now();
      await Promise.race([pass(ms), runs]);
      return (tally.latencies.length - before) / (performance.now() - from);
    }, job.warmUp);
    tally.latencies.length = 0;
    const before = kin.weigh();
    const from = performance.now();
    await Promise.race([pass(job.duration), runs]);
    // Some take longer for one answer.
    while (tally.latencies.length === 0) await Promise.race([pass(READY_PAUSE), runs]);
    const seconds = (performance.now() - from) / 1000;
    const after = kin.weigh();
    const latencies = Float64Array.from(tally.latencies).sort();
    tally.isOver = true;
    await runs;
    tell(summarize(latencies, seconds, before, after));
  }
  caller.close();
  await host.end();
}

/** @throws if the server does not let clients in. */
async function arrive(kind: HttpFace["kind"], url: URL): Promise<Caller> {
  if (kind === "sse") return Channel.open(url);
  const visitor = await Visitor.arrive(url);
  return {
    async call(text) {
      const { status, body } = await visitor.post(text);
      if (status !== 200) throw new Error(`answered with ${status}: ${excerpt(body)}`);
      return body;
    },
    async listTools() {
      const messages = await visitor.ask("tools/list", {});
      return namesIn(messages.find(({ result }) => result !== undefined)?.result);
    },
    close: () => visitor.close(),
  };
}

/** A client of a server that has the tool; some listen before they let clients in. @throws if that takes too long. */
async function awaitTool(kind: HttpFace["kind"], url: URL, tool: string): Promise<Caller> {
  const deadline = performance.now() + READY_LIMIT;
  for (;;) {
    let why: unknown;
    try {
      const caller = await arrive(kind, url);
      const names = await caller.listTools();
      if (names.includes(tool)) return caller;
      caller.close();
      why = new Error(`tools are missing: ${names.join(" ")}`);
    } catch (error) {
      why = error;
    }
    if (performance.now() > deadline) throw why;
    await pass(READY_PAUSE);
  }
}

interface Tally {
  readonly latencies: number[];
  isOver: boolean;
}

/** One call after the other, until it is over. */
async function callOn(
  caller: Caller,
  tool: string,
  { lines }: Lap,
  nextKey: () => number,
  tally: Tally,
): Promise<void> {
  while (!tally.isOver) {
    const key = nextKey();
    const params = `{"name":"${tool}","arguments":{"key":"${key}","lines":${lines}}}`;
    const text = `{"jsonrpc":"2.0","id":${key},"method":"tools/call","params":${params}}`;
    const asked = performance.now();
    const body = await caller.call(text, key);
    tally.latencies.push((performance.now() - asked) * 1000);
    const isRight = key % SAMPLE_EVERY === 1 ? isAnswer : resemblesAnswer;
    if (!isRight(body, key, lines)) throw new Error(`not the answer to ${key}: ${excerpt(body)}`);
  }
}

/** A look at all of it. */
function isAnswer(body: Buffer, key: number, lines: number): boolean {
  const data = /^data: ?(\{.*"result".*)$/m.exec(body.toString())?.[1] ?? body.toString();
  const { id, result } = JSON.parse(data) as {
    id?: unknown;
    result?: { content?: { text?: string }[] };
  };
  return id === key && result?.content?.[0]?.text === answerText(key, lines);
}

/** The key is there as the id and in the text, and it is long enough. */
function resemblesAnswer(body: Buffer, key: number, lines: number): boolean {
  const digits = String(key);
  const first = body.indexOf(digits);
  const isTwice = first >= 0 && body.lastIndexOf(digits) > first;
  return isTwice && body.length > answerText(key, lines).length;
}

function pass(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
