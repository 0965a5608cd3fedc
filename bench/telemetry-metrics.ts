/** Measures what metrics add to a call, in this process, without a hub or servers. */
import { Buffer } from "node:buffer";
import process from "node:process";
import { systemClock } from "../src/base/clock.ts";
import { EventBus } from "../src/base/hub-events.ts";
import { CountedResponder, setOwner } from "../src/frontend/counted-responder.ts";
import { parseMessage } from "../src/jsonrpc/parse.ts";
import type { Call } from "../src/router/call.ts";
import { errorTypeOfResponse } from "../src/router/error-type.ts";
import { HubMetrics } from "../src/telemetry/hub-metrics.ts";

/** Number of calls in one measurement. */
const CALLS = 50_000;
/** Tools and clients that take turns. */
const TOOLS = Array.from({ length: 40 }, (_, at) => ({
  name: `server__tool_${at}`,
  own: `tool_${at}`,
}));
const CLIENTS = ["editor", "ci"];
const ANSWER = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a line"}]}}';

const COUNTED = { label: "editor", clock: systemClock };
const OWNER = { call: {} as Call };
const RESPONDER = { notify() {}, respond() {} };

/**
 * The CPU time of a call in its metrics, in µs: whether its answer is an error, for the client and for the server, and its
 * duration in both.
 * @param rounds number of measurements
 */
export function timeMetrics({ rounds }: { readonly rounds: number }): readonly number[] {
  const metrics = new HubMetrics({
    bus: new EventBus(),
    serverStates: [],
    numbers: () => ({
      serverStates: new Map(),
      clients: 0,
      activeCalls: 0,
      queueLength: 0,
      refused: {},
    }),
    redact: (text) => text,
    wallNow: Date.now,
    now: () => performance.now(),
    onWanted: () => {},
  });
  const { server, client } = metrics.count();
  const answer = parseMessage(Buffer.from(ANSWER));
  if (answer.kind !== "response") throw new Error("this is no answer");
  const run = (at: number): void => {
    const tool = TOOLS[at % TOOLS.length];
    const who = CLIENTS[(at >> 4) % CLIENTS.length] ?? "";
    if (tool === undefined) return;
    const responder = new CountedResponder(server, "tools/call", COUNTED, RESPONDER);
    setOwner(responder, OWNER);
    const atServer = errorTypeOfResponse(answer, true);
    client.observeOperation("tools/call", tool.own, "server", who, atServer, at % 50);
    const atHub = errorTypeOfResponse(answer, true);
    server.observeOperation("tools/call", tool.name, "server", who, atHub, at % 60);
    responder.respond(undefined);
  };
  const measure = (): number => {
    const before = process.cpuUsage();
    for (let at = 0; at < CALLS; at++) run(at);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / CALLS;
  };
  measure();
  const times = Array.from({ length: rounds }, measure);
  const counted = server.metric;
  const sum =
    "histograms" in counted ? counted.histograms.reduce((all, { count }) => all + count, 0) : 0;
  if (sum !== CALLS * (rounds + 1)) throw new Error("a call was not counted");
  return times;
}
