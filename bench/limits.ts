/** Measures what limits add to a call, in this process, without a hub or servers. */
import process from "node:process";
import { setReceiptTime, systemClock, wallNow } from "../src/base/clock.ts";
import { Limits } from "../src/limits/limits.ts";
import type { RunnableServer } from "../src/manifest/manifest.ts";
import type { HeldCall } from "../src/router/approval-gate.ts";
import { LimitGate } from "../src/router/limit-gate.ts";

/** Numbers that no loop reaches. */
const MANY = 1_000_000_000;
const PER = { count: MANY, per: 1000 };
const ALL_KINDS = {
  rate: PER,
  burst: MANY,
  quota: { count: MANY, per: 86_400_000 },
  maxConcurrent: 1000,
};
/** Number of calls in one measurement. */
const CALLS = 50_000;
/** Number of calls that arrive at a time. */
const RECEIVED = 16;

/**
 * The CPU time of a call in limits of all kinds, of the hub, the client, the server and the tool, in µs: from its arrival to
 * its end, for calls that need not wait.
 * @param rounds number of measurements
 */
export function timeLimits({ rounds }: { readonly rounds: number }): readonly number[] {
  const limits = new Limits({
    clock: systemClock,
    wallNow,
    openQuotas: undefined,
    emit: () => {},
    onUsedQuotas: () => {},
    warn: () => {},
  });
  const server = {
    name: "echo",
    limits: { ...ALL_KINDS, maxQueued: 100 },
    tools: { limits: { "e*": ALL_KINDS } },
  } as unknown as RunnableServer;
  limits.configure({ limits: { ...ALL_KINDS, client: ALL_KINDS }, servers: [server] });
  const { active } = limits;
  if (active === undefined) throw new Error("there are no limits");
  const client = active.clientScope({ principal: undefined, connection: undefined });
  const call = { isOver: false, token: undefined } as unknown as HeldCall;
  const subject = ["anybody", "echo", "echo"];
  let passed = 0;
  const pass = (): void => void passed++;
  const run = (): void => {
    const gate = new LimitGate({
      limits: active,
      client,
      scopes: active.scopesOf("echo", "echo"),
      approval: undefined,
      hasPlugins: false,
      outer: undefined,
      retried: undefined,
      subject,
    });
    gate.hold(call, pass);
    gate.end();
  };
  const measure = (): number => {
    const before = process.cpuUsage();
    for (let at = 0; at < CALLS; at++) {
      // A hub reads its clocks once for all that it receives at a time.
      if (at % RECEIVED === 0) setReceiptTime(performance.now());
      run();
    }
    setReceiptTime(undefined);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / CALLS;
  };
  measure();
  const times = Array.from({ length: rounds }, measure);
  if (passed !== CALLS * (rounds + 1)) throw new Error("a call was not let through");
  return times;
}
